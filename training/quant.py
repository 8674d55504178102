"""MLX's affine quantization in PyTorch, for quantization-aware training: groups of 64 along the last axis.

The formula is that of `mlx.core.quantize` (shared by `docs/format.md`): scale and bias are made in float32, the codes with those
unrounded, then both are stored in bfloat16. `export.py` quantizes with mlx itself and checks that both give the same tensors.
"""
import torch

GROUP = 64


def bits_of(name, shape):
    """Bits of a parameter of the class, or None where it stays bfloat16: as in the pinned 4-bit checkpoint."""
    if len(shape) < 2 or shape[-1] % GROUP:
        return None
    return 8 if name.endswith("router.proj.weight") else 4


def fake_quantize(w, bits):
    """What a runtime reads back for `w` (rounded to bfloat16 first, as the checkpoint before quantization is), float32."""
    top = (1 << bits) - 1
    g = w.to(torch.bfloat16).float().reshape(-1, GROUP)
    lo, hi = g.amin(1, keepdim=True), g.amax(1, keepdim=True)
    low_edge = lo.abs() > hi.abs()
    s = ((hi - lo) / top).clamp_min(1e-7)
    s = torch.where(low_edge, s, -s)
    edge = torch.where(low_edge, lo, hi)
    q0 = torch.round(edge / s)
    some = q0 != 0
    s = torch.where(some, edge / torch.where(some, q0, torch.ones_like(q0)), s)
    b = torch.where(some, edge, torch.zeros_like(edge))
    q = torch.round((g - b) / s).clamp(0, top)
    return (q * s.to(torch.bfloat16).float() + b.to(torch.bfloat16).float()).reshape(w.shape)
