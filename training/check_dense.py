"""Shows that the dense form is the class's function: logits and every gradient, in float64 and float32.

In float32 the two forms round differently, and where two experts' scores lie closer than that, they pick different ones; the
gradient then differs with reason. So the float32 run is given the loop's own picks; the float64 run chooses for itself.

usage: python3 check_dense.py
"""
import copy

import torch

import model


class Picks:
    """Records the picks of one run and plays them to the next."""

    def __init__(self):
        self.index, self.play = [], None

    def topk(self, values, k, dim):
        if self.play is None:
            weights, index = TOPK(values, k=k, dim=dim)
            self.index.append(index)
            return weights, index
        index = next(self.play)
        return values.gather(dim, index), index


TOPK = torch.topk


def compare(dtype, share_picks):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loop = model.reference(model.text_config()).to(device, dtype)
    for name, p in loop.named_parameters():
        with torch.no_grad():
            p.normal_(0, 0.05) if p.dim() > 1 else p.uniform_(0.5, 1.5)
    dense = model.make_dense(copy.deepcopy(loop))
    ids = torch.randint(3, 6144, (4, 256), device=device)
    results, picks = [], Picks()
    for m in (loop, dense):
        if share_picks:
            torch.topk = picks.topk
        logits = m(input_ids=ids, use_cache=False).logits
        torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
        results.append((logits.detach(), {model.class_name(n): p.grad for n, p in m.named_parameters()}))
        torch.topk, picks.play = TOPK, iter(picks.index)
    (a, ga), (b, gb) = results
    worst = max(((ga[n] - gb[n]).norm() / ga[n].norm().clamp_min(1e-12)).item() for n in ga)
    difference = ((a - b).norm() / a.norm()).item()
    agree = (a.argmax(-1) == b.argmax(-1)).float().mean().item()
    print(f"{device} {dtype}: logits differ by {difference:.2e} of their norm, same argmax {agree:.4f}, "
          f"gradients by at most {worst:.2e} of their norm, over {len(ga)} tensors")
    return difference, worst, agree


def main():
    torch.set_float32_matmul_precision("highest")
    difference, worst, agree = compare(torch.float64, False)
    assert difference < 1e-12 and worst < 1e-12 and agree == 1, "float64"
    # A thousand roundings of 6e-8 on the way through twelve layers.
    difference, worst, agree = compare(torch.float32, True)
    assert difference < 1e-4 and worst < 5e-3 and agree > 0.999, "float32"


if __name__ == "__main__":
    main()
