"""The demonstration model: transformers' Gemma 4 text classes at a small size, and the dense form used for training.

Dense form: every expert is computed for every token and weighted by the router's weight, zero where it was not picked. That is
the same function as the class's loop over experts (`check_dense.py` shows it in float32) and two large matrix products on a GPU.
"""
import json

import torch
from torch import nn
from transformers import Gemma4ForCausalLM, Gemma4TextConfig

ROPE = {"full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}


def text_config(**changes):
    """`text_config` of config.json. Every mechanism of Gemma 4 26B-A4B, small widths."""
    layers = changes.get("num_hidden_layers", 12)
    config = dict(
        attention_bias=False, attention_dropout=0.0, attention_k_eq_v=True, bos_token_id=2, dtype="bfloat16", enable_moe_block=True,
        eos_token_id=1, final_logit_softcapping=30.0, global_head_dim=128, head_dim=64, hidden_activation="gelu_pytorch_tanh",
        hidden_size=256, hidden_size_per_layer_input=0, initializer_range=0.02, intermediate_size=512,
        layer_types=["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(layers)], max_position_embeddings=4096,
        model_type="gemma4_text", moe_intermediate_size=64, num_attention_heads=4, num_experts=16, num_global_key_value_heads=1,
        num_hidden_layers=layers, num_key_value_heads=2, num_kv_shared_layers=0, pad_token_id=0, rms_norm_eps=1e-06,
        rope_parameters=ROPE, sliding_window=256, tie_word_embeddings=True, top_k_experts=4, use_bidirectional_attention="vision",
        use_cache=True, use_double_wide_mlp=False, vocab_size=6144, vocab_size_per_layer_input=6144)
    config.update(changes)
    return dict(sorted(config.items()))


def reference(config, attention="eager"):
    """The class as it is, float32, weights at random."""
    fields = {k: v for k, v in config.items() if k not in ("dtype", "model_type")}
    c = Gemma4TextConfig(**json.loads(json.dumps(fields)))
    c._attn_implementation = attention
    c._experts_implementation = "eager"
    return Gemma4ForCausalLM(c).to(torch.float32)


class DenseExperts(nn.Module):
    """Stands in for `Gemma4TextExperts` with its parameters and its arguments."""

    def __init__(self, experts):
        super().__init__()
        self.gate_up_proj, self.down_proj = experts.gate_up_proj, experts.down_proj
        self.act_fn = experts.act_fn

    def forward(self, hidden, index, weights):
        """hidden [N, H], index and weights [N, k] to [N, H]."""
        e, two_i, h = self.gate_up_proj.shape
        mask = torch.zeros(hidden.shape[0], e, dtype=weights.dtype, device=hidden.device).scatter(1, index, weights)
        gate, up = nn.functional.linear(hidden, self.gate_up_proj.reshape(e * two_i, h)).view(-1, e, two_i).chunk(2, dim=-1)
        act = self.act_fn(gate) * up * mask.to(hidden.dtype)[:, :, None]
        return act.reshape(-1, e * two_i // 2) @ self.down_proj.transpose(1, 2).reshape(e * two_i // 2, h)


class Balance(torch.autograd.Function):
    """The identity on the router's weights; backward adds the gradient of the balance loss, which the class has no output for."""

    @staticmethod
    def forward(ctx, weights, loss):
        ctx.save_for_backward(loss)
        return weights.view_as(weights)

    @staticmethod
    def backward(ctx, grad):
        (loss,) = ctx.saved_tensors
        return grad, torch.ones_like(loss)


class BalancedRouter(nn.Module):
    """Wraps `Gemma4TextRouter`: the same outputs, and a loss that falls as the experts' shares even out.

    With share f_e of the picks and mean probability p_e, experts E: E * sum(f_e * p_e), 1 at balance (Switch Transformer, eq. 4).
    """

    def __init__(self, router, strength):
        super().__init__()
        self.router, self.strength = router, strength
        self.register_buffer("share", torch.zeros(router.config.num_experts), persistent=False)

    def forward(self, hidden):
        probabilities, weights, index = self.router(hidden)
        e = probabilities.shape[-1]
        share = nn.functional.one_hot(index, e).to(torch.float32).sum((0, 1)) / index.numel()
        loss = e * (share * probabilities.mean(0)).sum() * self.strength
        return probabilities, Balance.apply(weights, loss), index


def make_dense(model, balance=0.0):
    """Swaps the experts of `model` for the dense form, in place, and adds the balance loss; names of parameters change."""
    for layer in model.model.layers:
        layer.experts = DenseExperts(layer.experts)
        if balance:
            layer.router = BalancedRouter(layer.router, balance)
        # Learned in the published model, a buffer in the class.
        scalar = layer.layer_scalar
        del layer.layer_scalar
        layer.layer_scalar = nn.Parameter(scalar.clone())
    return model


@torch.no_grad()
def initialize(model):
    """A start at which attention is soft and every branch a small change of the residual stream.

    Attention has no scale of its own (1.0): with unit norms its logits would have a spread of sqrt(head_dim), close to a hard
    choice, so q_norm starts at head_dim^-1/2. The embedding is scaled to unit size, and what a branch adds to 0.3 of that.
    """
    model.model.embed_tokens.weight.normal_(0, model.config.hidden_size ** -0.5)
    for layer in model.model.layers:
        layer.self_attn.q_norm.weight.fill_(layer.self_attn.head_dim ** -0.5)
        layer.post_attention_layernorm.weight.fill_(0.3)
        layer.post_feedforward_layernorm.weight.fill_(0.3)
    return model


def class_name(name):
    """A parameter's name in the class, from its name in the dense form."""
    return name.replace(".router.router.", ".router.")


def masks(tokens, bos, window):
    """For rows of packed dialogues [B, T]: positions within each dialogue, and the two masks [B, 1, T, T] (true is visible)."""
    t = tokens.shape[1]
    at = torch.arange(t, device=tokens.device)
    start = tokens == bos
    first = torch.where(start, at, 0).cummax(1).values
    same = first[:, :, None] == first[:, None, :]
    distance = at[:, None] - at[None, :]
    full = same & (distance >= 0)
    return at - first, full[:, None], (full & (distance < window))[:, None]
