# SPDX-License-Identifier: Apache-2.0
"""Models of tokens in plain PyTorch, written from their publications: peers for the steps of ours.

A model is a list of layers in the words of a scenario's `kind = "layers"`; `gpt` and `llama` make such a list of their sizes.
Weights are tensors by pipetwin's names, matrices are (inputs, outputs).
"""
import math

import torch
import torch.nn.functional as F
import torch.nn.utils.stateless


def gpt(sizes):
    """Radford et al. 2019: norms before, GELU, biases, learned positions."""
    width = sizes["d_model"]
    gelu = {"type": "gelu", "name": "gelu", "approximate": "tanh" if sizes.get("gelu") == "tanh" else "none"}
    layers = [{"type": "embedding", "name": "embedding", "outputs": width, "context": sizes["context"]}]
    for block in range(sizes["layers"]):
        layers += [{"type": "residual", "name": f"block{block}.attention",
                    "layer": [{"type": "layer_norm", "name": "norm"},
                              {"type": "attention", "name": "attention", "heads": sizes["heads"]}]},
                   {"type": "residual", "name": f"block{block}.feed_forward",
                    "layer": [{"type": "layer_norm", "name": "norm"}, {"type": "linear", "name": "up"},
                              gelu, {"type": "linear", "name": "down"}]}]
    return layers + head("layer_norm", sizes)


def llama(sizes):
    """Touvron et al., arXiv 2302.13971 and 2307.09288; Llama 3's positions, whose frequencies are scaled."""
    norm = {"type": "rms_norm", "name": "norm", "epsilon": sizes.get("epsilon", 1e-5)}
    attention = {"type": "attention", "name": "attention", "rotary_base": 10000, "bias": False}
    attention.update({key: value for key, value in sizes.items() if key in ("heads", "key_value_heads", "head_size")
                      or key.startswith("rotary_")})
    layers = [{"type": "embedding", "name": "embedding", "outputs": sizes["d_model"], "context": sizes["context"]}]
    for block in range(sizes["layers"]):
        has_experts = "experts" in sizes and block >= sizes.get("dense_layers", 0)
        dense = [{"type": "linear", "name": "gate_up"}, {"type": "swiglu", "name": "swiglu"}, {"type": "linear", "name": "down"}]
        experts = {"type": "experts", "name": "experts", **sizes}
        layers += [{"type": "residual", "name": f"block{block}.attention", "layer": [norm, attention]},
                   {"type": "residual", "name": f"block{block}.feed_forward", "layer": [norm, *([experts] if has_experts else dense)]}]
    return layers + head(norm["type"], sizes)


def head(norm, sizes):
    return [{"type": "sequence", "name": "head",
             "layer": [{"type": norm, "name": "norm", "epsilon": sizes.get("epsilon", 1e-5)},
                       {"type": "linear", "name": "projection", "tied": sizes.get("tied", False)},
                       {"type": "cross_entropy", "name": "loss"}]}]


def layers_of(model):
    kinds = {"gpt": gpt, "llama": llama, "moe": llama, "layers": lambda model: model["layer"]}
    return kinds[model["kind"]](model)


def rotary_frequencies(spec, size):
    """In double. Scaled as Llama 3.1's (`rotary_context`: positions of the training before), or all alike."""
    plain = spec["rotary_base"] ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    factor = spec.get("rotary_factor", 1)
    if "rotary_context" not in spec:
        return plain / factor
    low, high = spec.get("rotary_low_frequency", 1), spec.get("rotary_high_frequency", 4)
    wavelength = 2 * math.pi / plain
    shortest, longest = spec["rotary_context"] / high, spec["rotary_context"] / low
    smooth = (spec["rotary_context"] / wavelength - low) / (high - low)
    between = (1 - smooth) * plain / factor + smooth * plain
    return torch.where(wavelength > longest, plain / factor, torch.where(wavelength < shortest, plain, between))


def exact(x):
    """At least in fp32, in which norms, softmax and loss compute."""
    return x.float() if x.dtype == torch.bfloat16 else x


def activation_of(model):
    """Of a translation model's feed-forward halves, as nn.Transformer takes it."""
    if model.get("gelu") == "tanh":
        return lambda x: F.gelu(x, approximate="tanh")
    return model.get("activation", "relu")


class TranslationModel:
    """An encoder and a decoder: torch.nn.Transformer with norms before, between our embedding and head."""

    def __init__(self, model, weights, number):
        self.sizes, self.weights, self.number = model, weights, number
        width = model["d_model"]
        self.transformer = torch.nn.Transformer(
            width, model["heads"], model["layers"], model["layers"], model.get("feed_forward", 4 * width), dropout=0,
            activation=activation_of(model), batch_first=True, norm_first=True, dtype=number)

    def weight(self, name):
        return self.weights[name].to(self.number)

    def pair(self, ours, theirs):
        """A matrix and its bias by torch's names."""
        return {theirs + "weight": self.weight(ours + ".weight").T, theirs + "bias": self.weight(ours + ".bias").flatten()}

    def norm(self, ours, theirs):
        return {theirs + ".weight": self.weight(ours + ".gain").flatten(), theirs + ".bias": self.weight(ours + ".bias").flatten()}

    def attention(self, ours, theirs):
        parts = ["qkv"] if ours + ".qkv.weight" in self.weights else ["q", "kv"]
        return {theirs + ".in_proj_weight": torch.cat([self.weight(f"{ours}.{part}.weight").T for part in parts]),
                theirs + ".in_proj_bias": torch.cat([self.weight(f"{ours}.{part}.bias").flatten() for part in parts]),
                **self.pair(ours + ".out", theirs + ".out_proj.")}

    def parameters(self):
        """Ours by the names of nn.Transformer."""
        found = {**self.norm("memory", "encoder.norm"), **self.norm("head.norm", "decoder.norm")}
        for half, attentions in (("encoder", {"attention": "self_attn"}),
                                 ("decoder", {"attention": "self_attn", "cross_attention": "multihead_attn"})):
            for block in range(self.sizes["layers"]):
                ours, theirs = f"{half}{block}", f"{half}.layers.{block}"
                for number, (unit, name) in enumerate(attentions.items()):
                    found.update(self.norm(f"{ours}.{unit}.norm", f"{theirs}.norm{number + 1}"))
                    found.update(self.attention(f"{ours}.{unit}.attention", f"{theirs}.{name}"))
                found.update(self.norm(f"{ours}.feed_forward.norm", f"{theirs}.norm{len(attentions) + 1}"))
                found.update(self.pair(f"{ours}.feed_forward.up", f"{theirs}.linear1."))
                found.update(self.pair(f"{ours}.feed_forward.down", f"{theirs}.linear2."))
        return found

    def embedded(self, tokens, table, first):
        width = self.sizes["d_model"]
        y = math.sqrt(width) * F.embedding(tokens, table)
        if self.sizes.get("learned_positions"):
            return y + self.weight("embedding.places")[first:first + tokens.shape[1]]
        half = (width + 1) // 2
        angles = torch.outer(torch.arange(tokens.shape[1], dtype=torch.float64),
                             10000.0 ** (-torch.arange(half, dtype=torch.float64) / half))
        return y + torch.cat([angles.sin(), angles.cos()], -1)[:, :width].to(self.number)

    def loss(self, tokens, targets, lengths):
        """The mean over the positions of a micro-batch that have a target."""
        context = self.sizes["source_context"]
        source, target = tokens[:, :context], tokens[:, context:]
        table = self.weight("embedding.tokens")
        of_source = self.weight("embedding.source_tokens") if "embedding.source_tokens" in self.weights else table
        padding = torch.arange(context) >= lengths[:, None]
        future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        y = torch.nn.utils.stateless.functional_call(
            self.transformer, self.parameters(),
            (self.embedded(source, of_source, 0), self.embedded(target, table, context)),
            {"tgt_mask": future, "src_key_padding_mask": padding, "memory_key_padding_mask": padding})
        head = self.weights.get("head.projection.weight")
        logits = y @ (table.T if head is None else head.to(self.number))
        smoothing = self.sizes.get("label_smoothing", 0)
        if self.sizes.get("smoothing") == "others":  # 1 - e for the target, e / (V - 1) for each other
            chances = F.log_softmax(exact(logits), -1)[targets >= 0]
            of_target = chances.gather(1, targets[targets >= 0][:, None])[:, 0]
            shared = smoothing / (logits.shape[-1] - 1)
            return -((1 - smoothing - shared) * of_target + shared * chances.sum(-1)).mean()
        return F.cross_entropy(exact(logits).flatten(0, 1), targets.flatten(), ignore_index=-1, label_smoothing=smoothing)


def peer_of(model, weights, number):
    kind = TranslationModel if model["kind"] == "translation" else TokenModel
    return kind(model, weights, number)


class TokenModel:
    """`number`: the type in which it computes; `weights` may be more exact, and are rounded where they are read."""

    def __init__(self, model, weights, number):
        self.layers, self.weights, self.number = layers_of(model), weights, number
        self.bias_update, self.copies = model.get("bias_update", 0), {}
        (self.table,) = [name for name in weights if name.endswith(".tokens")]

    def weight(self, name):
        tensor = self.weights.get(name)
        return None if tensor is None else tensor.to(self.number)

    def loss(self, tokens, targets, lengths=None):
        """The mean over the positions of a micro-batch that have a target, all that this model has."""
        self.targets, self.auxiliary = targets, 0.0
        return self.chain(self.layers, "", tokens)

    def move_biases(self):
        """After a step (DeepSeek-V3, section 2.1.2), from what all its micro-batches have chosen."""
        for name, copies in self.copies.items() if self.bias_update else ():
            bias = self.weights[name + ".router.choice_bias"]
            bias += self.bias_update * torch.sign(copies.double().mean() - copies).view_as(bias)
        self.copies = {}

    def chain(self, layers, path, x):
        for index, spec in enumerate(layers):
            name = path + spec.get("name", f"{spec['type']}{index}")
            x = getattr(self, spec["type"])(spec, name, x)
        return x

    def sequence(self, spec, name, x):
        return self.chain(spec["layer"], name + ".", x)

    def residual(self, spec, name, x):
        return x + self.chain(spec["layer"], name + ".", x)

    def embedding(self, spec, name, x):
        y = F.embedding(x, self.weight(name + ".tokens"))
        places = self.weight(name + ".places")
        return y if places is None else y + places[:x.shape[1]]

    def layer_norm(self, spec, name, x):
        gain, bias = exact(self.weight(name + ".gain")), exact(self.weight(name + ".bias"))
        return F.layer_norm(exact(x), (x.shape[-1],), gain.flatten(), bias.flatten(), eps=1e-5).to(x.dtype)

    def rms_norm(self, spec, name, x):
        wide = exact(x)
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + spec.get("epsilon", 1e-5))
        return scaled.to(x.dtype) * self.weight(name + ".gain").flatten()

    def product(self, name, x):
        bias = self.weight(name + ".bias")
        y = x @ self.weight(name + ".weight")
        return y if bias is None else y + bias.flatten()

    def linear(self, spec, name, x):
        return x @ self.weight(self.table).T if spec.get("tied") else self.product(name, x)

    def gelu(self, spec, name, x):
        return F.gelu(x, approximate=spec.get("approximate", "none"))

    def swiglu(self, spec, name, x):
        gates, values = x.chunk(2, dim=-1)
        return F.silu(gates) * values

    def experts(self, spec, name, x):
        """Mixtral's (arXiv 2401.04088), or DeepSeek-V3's (arXiv 2412.19437): one row at a time meets every expert that it has
        chosen. The loss of unequal loads is Switch Transformer's (arXiv 2101.03961), equations 4 to 6."""
        shared = self.half(name.rpartition(".")[0], x) if "shared_feed_forward" in spec else 0
        rows, count = x.flatten(0, -2), spec["experts"]
        logits = exact(rows @ self.weight(name + ".router.weight"))
        is_sigmoid = spec.get("router", "softmax") == "sigmoid"
        scores = logits.sigmoid() if is_sigmoid else logits.softmax(-1)
        bias = self.weights.get(name + ".router.choice_bias")
        choosing = scores.detach() if bias is None else scores.detach() + exact(bias).flatten().to(scores.dtype)
        groups = choosing.unflatten(-1, (spec.get("router_groups", 1), -1))
        of_groups = groups.topk(2, dim=-1).values.sum(-1) if is_sigmoid and groups.shape[-1] > 1 else groups.max(-1).values
        best = of_groups.topk(spec.get("router_groups_per_token", 1), dim=-1).indices
        may = torch.zeros_like(of_groups).scatter(1, best, 1.0).repeat_interleave(groups.shape[-1], dim=1) > 0
        chosen = choosing.masked_fill(~may, -math.inf).topk(spec["experts_per_token"], dim=-1).indices
        weights = scores.gather(1, chosen)
        if spec.get("router_normalised", True):
            weights = weights / weights.sum(-1, keepdim=True)
        weights = weights * spec.get("router_scale", 1)
        y = torch.zeros_like(exact(rows))
        for expert in range(count):
            row, place = (chosen == expert).nonzero(as_tuple=True)
            gates = rows[row] @ self.weight(f"{name}.{expert}.gate_up.weight")
            made = self.swiglu(spec, name, gates) @ self.weight(f"{name}.{expert}.down.weight")
            y = y.index_add(0, row, weights[row, place][:, None] * exact(made))
        copies = torch.bincount(chosen.flatten(), minlength=count)
        self.copies[name] = self.copies.get(name, 0) + copies
        loads = copies.to(scores.dtype) / chosen.numel()
        means = (scores / scores.sum(-1, keepdim=True)).mean(0)
        self.auxiliary = self.auxiliary + spec.get("auxiliary_loss", 0) * count * (loads * means).sum()
        return y.to(x.dtype).view_as(x) + shared

    def half(self, path, x):
        """The gated half beside experts."""
        return self.product(path + ".down", self.swiglu(None, path, self.product(path + ".gate_up", x)))

    def turned(self, spec, x):
        """`x`: (samples, heads, positions, size), whose two halves are pairs."""
        if "rotary_base" not in spec:
            return x
        places = torch.arange(x.shape[2], dtype=torch.float64)
        angles = torch.outer(places, rotary_frequencies(spec, x.shape[3]))
        cosines, sines = (torch.cat([part, part], -1).to(exact(x).dtype) for part in (angles.cos(), angles.sin()))
        left, right = exact(x).chunk(2, dim=-1)
        return (exact(x) * cosines + torch.cat([-right, left], -1) * sines).to(x.dtype)

    def attention(self, spec, name, x):
        heads = spec["heads"]
        groups = spec.get("key_value_heads", heads)
        size = spec.get("head_size", x.shape[-1] // heads)
        qkv = self.product(name + ".qkv", x).unflatten(-1, (heads + 2 * groups, size)).transpose(1, 2)
        q, k, v = qkv.split((heads, groups, groups), dim=1)
        q, k = self.turned(spec, q), self.turned(spec, k)
        k, v = (part.repeat_interleave(heads // groups, dim=1) for part in (k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(size)
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        probabilities = F.softmax(exact(scores).masked_fill(future, -math.inf), dim=-1).to(x.dtype)
        context = (probabilities @ v).transpose(1, 2).flatten(2)
        return self.product(name + ".out", context)

    def cross_entropy(self, spec, name, x):
        return F.cross_entropy(exact(x).flatten(0, 1), self.targets.flatten())
