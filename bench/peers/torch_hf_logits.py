#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of models with published weights: the same folder of safetensors files, the same tokens, in PyTorch.

    cmake --preset release && cmake --build --preset release --target hf_logits
    /usr/bin/python3 bench/peers/torch_hf_logits.py build/release/bench/hf_logits

Writes folders as Hugging Face's libraries do (config.json, safetensors, names and shapes of GPT2LMHeadModel,
LlamaForCausalLM and MixtralForCausalLM) with random numbers, lets the program compute the logits of random tokens from them, and compares with the
formulas of these models in plain PyTorch, in double on the same rounded numbers. A difference is relative to the largest
logit; more than 1e-5 in fp32 or 1e-12 in fp64 ends with 1. Needs Debian's python3-torch; exits with 77 without it.
"""
import argparse
import importlib.util
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

if any(importlib.util.find_spec(name) is None for name in ("torch", "numpy")):
    print("skipped: no Python with torch was found (Debian: python3-torch)")
    sys.exit(77)

import torch
import torch.nn.functional as F

TOLERANCE = {"fp32": 1e-5, "fp64": 1e-12}
DTYPES = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16}
SAMPLES, POSITIONS, WORDS = 3, 12, 50


def write_safetensors(path, tensors, dtype):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        same_bits = {8: torch.int64, 4: torch.int32, 2: torch.int16}[tensor.element_size()]
        raw = tensor.contiguous().view(same_bits).numpy().tobytes()
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_folder(folder, tensors, config, dtype, shards):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, dtype)
        return
    names = [f"model-{shard + 1:05}-of-{shards:05}.safetensors" for shard in range(shards)]
    home = {name: names[number % shards] for number, name in enumerate(tensors)}
    for file in names:
        write_safetensors(folder / file, {name: tensor for name, tensor in tensors.items() if home[name] == file}, dtype)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": home}))


def causal_attention(q, k, v):
    """(samples, heads, positions, width) of each; as many rows of numbers as there are positions."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    above = torch.ones(POSITIONS, POSITIONS, dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(above, -math.inf).softmax(-1) @ v
    return mixed.transpose(1, 2).reshape(SAMPLES, POSITIONS, -1)


def in_heads(x, heads):
    return x.reshape(SAMPLES, POSITIONS, heads, -1).transpose(1, 2)


class Gpt2:
    """GPT2LMHeadModel: pre-norm blocks, learned positions, matrices of (inputs, outputs)."""

    def __init__(self, tied=True, prefix="transformer.", activation="gelu_new"):
        self.layers, self.width, self.heads, self.inner = 2, 24, 3, 40
        self.tied, self.prefix, self.activation = tied, prefix, activation
        self.approximate = "none" if activation == "gelu" else "tanh"

    def config(self):
        return {"model_type": "gpt2", "n_layer": self.layers, "n_embd": self.width, "n_head": self.heads, "n_inner": self.inner,
                "n_positions": POSITIONS, "vocab_size": WORDS, "activation_function": self.activation, "tie_word_embeddings": self.tied}

    def scenario(self):
        return (f'kind = "gpt"\nlayers = {self.layers}\nd_model = {self.width}\nheads = {self.heads}\n'
                f"feed_forward = {self.inner}\ntied = {str(self.tied).lower()}\n"
                f"gelu = \"{'exact' if self.approximate == 'none' else 'tanh'}\"\n")

    def shapes(self):
        width, inner = self.width, self.inner
        shapes = {"wte.weight": (WORDS, width), "wpe.weight": (POSITIONS, width)}
        for block in range(self.layers):
            shapes |= {f"h.{block}.{name}": shape for name, shape in {
                "ln_1.weight": (width,), "ln_1.bias": (width,), "attn.c_attn.weight": (width, 3 * width),
                "attn.c_attn.bias": (3 * width,), "attn.c_proj.weight": (width, width), "attn.c_proj.bias": (width,),
                "ln_2.weight": (width,), "ln_2.bias": (width,), "mlp.c_fc.weight": (width, inner), "mlp.c_fc.bias": (inner,),
                "mlp.c_proj.weight": (inner, width), "mlp.c_proj.bias": (width,)}.items()}
        shapes |= {"ln_f.weight": (width,), "ln_f.bias": (width,)}
        shapes = {self.prefix + name: shape for name, shape in shapes.items()}
        return shapes if self.tied else shapes | {"lm_head.weight": (WORDS, width)}

    def logits(self, tensors, tokens):
        w = {name.removeprefix(self.prefix): tensor for name, tensor in tensors.items()}

        def norm(name, x):
            return F.layer_norm(x, (self.width,), w[name + ".weight"], w[name + ".bias"], 1e-5)

        def linear(name, x):
            return x @ w[name + ".weight"] + w[name + ".bias"]

        x = w["wte.weight"][tokens] + w["wpe.weight"]
        for block in range(self.layers):
            h = f"h.{block}."
            q, k, v = (in_heads(part, self.heads) for part in linear(h + "attn.c_attn", norm(h + "ln_1", x)).split(self.width, -1))
            x = x + linear(h + "attn.c_proj", causal_attention(q, k, v))
            up = F.gelu(linear(h + "mlp.c_fc", norm(h + "ln_2", x)), approximate=self.approximate)
            x = x + linear(h + "mlp.c_proj", up)
        return norm("ln_f", x) @ w["wte.weight" if self.tied else "lm_head.weight"].T


class Llama:
    """LlamaForCausalLM: RMSNorm, rotated positions, grouped queries, SwiGLU; matrices of (outputs, inputs)."""

    def __init__(self, tied=False, pairs=2, head=6, theta=10000.0, scaling=None, epsilon=1e-5):
        self.layers, self.width, self.heads, self.inner = 2, 24, 4, 40
        self.tied, self.pairs, self.head, self.theta, self.scaling, self.epsilon = tied, pairs, head, theta, scaling, epsilon

    def config(self):
        return {"model_type": "llama", "num_hidden_layers": self.layers, "hidden_size": self.width,
                "num_attention_heads": self.heads, "num_key_value_heads": self.pairs, "head_dim": self.head,
                "intermediate_size": self.inner, "max_position_embeddings": 64, "vocab_size": WORDS, "hidden_act": "silu",
                "rms_norm_eps": self.epsilon, "rope_theta": self.theta, "rope_scaling": self.scaling,
                "tie_word_embeddings": self.tied}

    def scenario(self):
        text = (f'kind = "llama"\nlayers = {self.layers}\nd_model = {self.width}\nheads = {self.heads}\n'
                f"key_value_heads = {self.pairs}\nhead_size = {self.head}\nfeed_forward = {self.inner}\n"
                f"tied = {str(self.tied).lower()}\nepsilon = {self.epsilon}\nrotary_base = {self.theta}\n")
        scaling = self.scaling or {}
        names = {"rotary_factor": "factor", "rotary_context": "original_max_position_embeddings",
                 "rotary_low_frequency": "low_freq_factor", "rotary_high_frequency": "high_freq_factor"}
        return text + "".join(f"{ours} = {scaling[theirs]}\n" for ours, theirs in names.items() if theirs in scaling)

    def shapes(self):
        width, inner, queries, keys = self.width, self.inner, self.heads * self.head, self.pairs * self.head
        shapes = {"model.embed_tokens.weight": (WORDS, width)}
        for block in range(self.layers):
            shapes |= {f"model.layers.{block}.{name}.weight": shape for name, shape in {
                "input_layernorm": (width,), "self_attn.q_proj": (queries, width), "self_attn.k_proj": (keys, width),
                "self_attn.v_proj": (keys, width), "self_attn.o_proj": (width, queries), "post_attention_layernorm": (width,),
                "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width), "mlp.down_proj": (width, inner)}.items()}
        shapes |= {"model.norm.weight": (width,)}
        return shapes if self.tied else shapes | {"lm_head.weight": (WORDS, width)}

    def frequencies(self):
        """Of modeling_rope_utils: "default", "linear" and "llama3"."""
        plain = self.theta ** -(torch.arange(0, self.head, 2, dtype=torch.float64) / self.head)
        if self.scaling is None:
            return plain
        slow = plain / self.scaling["factor"]
        if self.scaling["rope_type"] == "linear":
            return slow
        low, high = self.scaling["low_freq_factor"], self.scaling["high_freq_factor"]
        turns = self.scaling["original_max_position_embeddings"] * plain / (2 * math.pi)
        share = ((turns - low) / (high - low)).clamp(0, 1)
        return share * plain + (1 - share) * slow

    def turned(self, x):
        angles = torch.arange(POSITIONS, dtype=torch.float64)[:, None] * self.frequencies()
        angles = torch.cat([angles, angles], -1)
        first, second = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()

    def half(self, layer, y, linear):
        gated = F.silu(linear(layer + "mlp.gate_proj", y)) * linear(layer + "mlp.up_proj", y)
        return linear(layer + "mlp.down_proj", gated)

    def logits(self, tensors, tokens):
        def norm(name, x):
            return x * (x.pow(2).mean(-1, keepdim=True) + self.epsilon).rsqrt() * tensors[name + ".weight"]

        def linear(name, x):
            return x @ tensors[name + ".weight"].T

        x = tensors["model.embed_tokens.weight"][tokens]
        for block in range(self.layers):
            layer = f"model.layers.{block}."
            y = norm(layer + "input_layernorm", x)
            q = self.turned(in_heads(linear(layer + "self_attn.q_proj", y), self.heads))
            k = self.turned(in_heads(linear(layer + "self_attn.k_proj", y), self.pairs))
            v = in_heads(linear(layer + "self_attn.v_proj", y), self.pairs)
            k, v = (part.repeat_interleave(self.heads // self.pairs, 1) for part in (k, v))
            x = x + linear(layer + "self_attn.o_proj", causal_attention(q, k, v))
            x = x + self.half(layer, norm(layer + "post_attention_layernorm", x), linear)
        x = norm("model.norm", x)
        return x @ tensors["model.embed_tokens.weight" if self.tied else "lm_head.weight"].T


class Mixtral(Llama):
    """MixtralForCausalLM: a Llama whose tokens each go through two of several gated halves."""

    experts, chosen = 5, 2

    def config(self):
        return {**super().config(), "model_type": "mixtral", "num_local_experts": self.experts, "num_experts_per_tok": self.chosen}

    def scenario(self):
        return super().scenario().replace("llama", "moe").replace("feed_forward", "expert_feed_forward") + \
            f"experts = {self.experts}\nexperts_per_token = {self.chosen}\n"

    def shapes(self):
        shapes = {name: shape for name, shape in super().shapes().items() if ".mlp." not in name}
        for block in range(self.layers):
            moe = f"model.layers.{block}.block_sparse_moe."
            shapes[moe + "gate.weight"] = (self.experts, self.width)
            for expert in range(self.experts):
                shapes |= {f"{moe}experts.{expert}.{name}.weight": shape for name, shape in {
                    "w1": (self.inner, self.width), "w2": (self.width, self.inner), "w3": (self.inner, self.width)}.items()}
        return shapes

    def half(self, layer, y, linear):
        moe = layer + "block_sparse_moe."
        weights, chosen = linear(moe + "gate", y).softmax(-1).topk(self.chosen, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        made = 0
        for expert in range(self.experts):  # of all tokens: the weights of others are 0
            one = f"{moe}experts.{expert}."
            share = (weights * (chosen == expert)).sum(-1, keepdim=True)
            made = made + share * linear(one + "w2", F.silu(linear(one + "w1", y)) * linear(one + "w3", y))
        return made


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}


def cases():
    """(name, model, dtype of the files, precision, number of files)"""
    yield "gpt2, tied", Gpt2(), "F32", "fp32", 1
    yield "gpt2, tied, no prefix, three shards", Gpt2(prefix=""), "F32", "fp64", 3
    yield "gpt2, untied, exact gelu", Gpt2(tied=False, activation="gelu"), "F64", "fp64", 1
    yield "gpt2 in half precision", Gpt2(), "F16", "fp32", 1
    yield "llama", Llama(), "F32", "fp32", 1
    yield "llama, a head each, two shards", Llama(pairs=4), "BF16", "fp64", 2
    yield "llama, one pair for all heads, tied", Llama(pairs=1, tied=True, epsilon=1e-6), "F32", "fp64", 1
    yield "llama 3's theta and wide heads", Llama(theta=500000.0, head=10), "BF16", "fp32", 1
    yield "llama 3.1's positions, tied", Llama(tied=True, theta=500000.0, scaling=LLAMA3), "F32", "fp64", 1
    yield "mixtral", Mixtral(theta=1e6), "F32", "fp32", 1
    yield "mixtral in bf16, two shards", Mixtral(pairs=1, theta=1e6), "BF16", "fp64", 2
    yield "llama, linear positions", Llama(scaling={"rope_type": "linear", "factor": 4.0}), "F32", "fp64", 1


def agrees(number, case, program, folder):
    name, model, dtype, precision, shards = case
    generator = torch.Generator().manual_seed(number)
    tensors = {}
    for tensor, shape in model.shapes().items():
        values = torch.randn(shape, generator=generator, dtype=torch.float64) * (0.3 if len(shape) == 2 else 0.1)
        is_gain = tensor.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight", "norm.weight"))
        tensors[tensor] = (values + (1 if is_gain else 0)).to(DTYPES[dtype])
    write_folder(folder / "weights", tensors, model.config(), dtype, shards)
    tokens = torch.randint(0, WORDS, (SAMPLES, POSITIONS), generator=generator)
    (folder / "tokens").write_bytes(tokens.int().numpy().tobytes())
    (folder / "scenario.toml").write_text(f"[model]\n{model.scenario()}context = {POSITIONS}\nvocabulary = {WORDS}\n"
                                          f'[training]\nprecision = "{precision}"\n')
    subprocess.run([program, folder, folder / "scenario.toml"], check=True)
    number_type = torch.float64 if precision == "fp64" else torch.float32
    ours = torch.frombuffer(bytearray((folder / "logits").read_bytes()), dtype=number_type).double()
    exact = {tensor: values.double() for tensor, values in tensors.items()}
    theirs = model.logits(exact, tokens).flatten()
    difference = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    is_near = difference <= TOLERANCE[precision]
    print(f"{name:40} {dtype:5} {precision}  {difference:.1e}", "" if is_near else "FAILED", flush=True)
    return is_near


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path, help="hf_logits")
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    for number, case in enumerate(cases()):
        with tempfile.TemporaryDirectory() as folder:
            results.append(agrees(number, case, args.program, pathlib.Path(folder)))
    print(f"{sum(results)} of {len(results)} within the tolerance")
    raise SystemExit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
