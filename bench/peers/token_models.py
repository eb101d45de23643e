"""Models of tokens in plain PyTorch, written from their publications: peers for the steps of ours.

A model is a list of layers in the words of a scenario's `kind = "layers"`; `gpt` and `llama` make such a list of their sizes.
Weights are tensors by pipetwin's names, matrices are (inputs, outputs).
"""
import math

import torch
import torch.nn.functional as F


def gpt(sizes):
    """Radford et al. 2019: norms before, GELU, biases, learned positions."""
    width = sizes["d_model"]
    layers = [{"type": "embedding", "name": "embedding", "outputs": width, "context": sizes["context"]}]
    for block in range(sizes["layers"]):
        layers += [{"type": "residual", "name": f"block{block}.attention",
                    "layer": [{"type": "layer_norm", "name": "norm"},
                              {"type": "attention", "name": "attention", "heads": sizes["heads"]}]},
                   {"type": "residual", "name": f"block{block}.feed_forward",
                    "layer": [{"type": "layer_norm", "name": "norm"}, {"type": "linear", "name": "up"},
                              {"type": "gelu", "name": "gelu"}, {"type": "linear", "name": "down"}]}]
    return layers + head("layer_norm", sizes)


def llama(sizes):
    """Touvron et al., arXiv 2302.13971 and 2307.09288; Llama 3's positions, whose frequencies are scaled."""
    norm = {"type": "rms_norm", "name": "norm", "epsilon": sizes.get("epsilon", 1e-5)}
    attention = {"type": "attention", "name": "attention", "rotary_base": 10000, "bias": False}
    attention.update({key: value for key, value in sizes.items() if key in ("heads", "key_value_heads", "head_size")
                      or key.startswith("rotary_")})
    layers = [{"type": "embedding", "name": "embedding", "outputs": sizes["d_model"], "context": sizes["context"]}]
    for block in range(sizes["layers"]):
        layers += [{"type": "residual", "name": f"block{block}.attention", "layer": [norm, attention]},
                   {"type": "residual", "name": f"block{block}.feed_forward",
                    "layer": [norm, {"type": "linear", "name": "gate_up"}, {"type": "swiglu", "name": "swiglu"},
                              {"type": "linear", "name": "down"}]}]
    return layers + head(norm["type"], sizes)


def head(norm, sizes):
    return [{"type": "sequence", "name": "head",
             "layer": [{"type": norm, "name": "norm", "epsilon": sizes.get("epsilon", 1e-5)},
                       {"type": "linear", "name": "projection", "tied": sizes.get("tied", False)},
                       {"type": "cross_entropy", "name": "loss"}]}]


def layers_of(model):
    kinds = {"gpt": gpt, "llama": llama, "layers": lambda model: model["layer"]}
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


class TokenModel:
    """`number`: the type in which it computes; `weights` may be more exact, and are rounded where they are read."""

    def __init__(self, model, weights, number):
        self.layers, self.weights, self.number = layers_of(model), weights, number
        (self.table,) = [name for name in weights if name.endswith(".tokens")]

    def weight(self, name):
        tensor = self.weights.get(name)
        return None if tensor is None else tensor.to(self.number)

    def loss(self, tokens, targets):
        self.targets = targets
        return self.chain(self.layers, "", tokens)

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
        return F.gelu(x)

    def swiglu(self, spec, name, x):
        gates, values = x.chunk(2, dim=-1)
        return F.silu(gates) * values

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
