"""Trains the demonstration model on one GPU or more. Runs are short and resume: the schedule follows the seconds trained so far.

usage: python3 train.py --tokenizer DIR/tokenizer.json --state DIR --total-seconds 1000 --run-seconds 500 [--weights DIR]
       torchrun --nproc-per-node 2 train.py ...      (one process a GPU, each with batches of its own)

Float32 master weights; what the GPU computes with is made from them before each step, rounded to bfloat16, and from
`--quantize-from` of the schedule on as the quantized checkpoint will hold them (straight-through gradients). `--state` keeps all
that resuming needs; `--weights` gets the masters as bfloat16, what `export.py` quantizes, in files of at most 16 MB.
"""
import argparse
import json
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import distributed

import model as demo
from packing import CONTEXT, WRITTEN, Encoder, Feed, rows
from quant import bits_of, fake_quantize


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--tokenizer", type=Path, required=True)
    p.add_argument("--state", type=Path, required=True)
    p.add_argument("--weights", type=Path)
    p.add_argument("--start-from", type=Path, help="folder of bfloat16 weights to begin with when there is no state")
    p.add_argument("--begin", type=float, default=0.0, help="seconds of the schedule that --start-from stands for")
    p.add_argument("--total-seconds", type=float, required=True)
    p.add_argument("--run-seconds", type=float, required=True)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--length", type=int, default=1024)
    p.add_argument("--lr", type=float, default=2.5e-3)
    p.add_argument("--decay", type=float, default=0.1, help="weight decay of the matrices")
    p.add_argument("--context-weight", type=float, default=0.1)
    p.add_argument("--balance", type=float, default=0.01)
    p.add_argument("--quantize-from", type=float, default=0.6)
    p.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--config", default="{}", help="changes to text_config, as JSON")
    p.add_argument("--no-compile", action="store_true")
    return p.parse_args()


def rate(progress):
    """The learning rate's share of its peak: 2 % warm-up, flat, then a straight line to zero over the last 55 %."""
    return min(1.0, progress / 0.02 + 0.01, max(0.0, (1 - progress) / 0.55))


class Weights:
    """The float32 masters, their optimizer, and the values in the model that are made from them.

    Three flat pieces, by the bits they will be quantized to: 4 (computed in bfloat16), 8 (the routers, in float32) and none (norms
    and scalars, in float32). The model's parameters are views of what is made from them.
    """

    def __init__(self, model, lr, decay):
        self.lr, self.parts, groups = lr, [], []
        named = {demo.class_name(n): p for n, p in model.named_parameters()}
        for bits in (4, 8, None):
            names = [n for n, p in named.items() if bits_of(n, p.shape) == bits]
            flat = torch.cat([named[n].detach().flatten() for n in names]).float()
            # A copy also where the type is the same: what is placed there must not round the masters.
            made, at = flat.to(torch.bfloat16 if bits == 4 else torch.float32, copy=True), 0
            for n in names:
                p = named[n]
                p.data = made[at:at + p.numel()].view(p.shape)
                at += p.numel()
            self.parts.append((bits, names, [named[n] for n in names], flat, made))
            groups.append({"params": [flat], "weight_decay": decay if bits else 0.0, "share": 1.0 if bits else 0.4})
        self.optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.97), eps=1e-8, fused=flat.is_cuda)

    def masters(self):
        """name -> float32 master, views."""
        out = {}
        for _, names, params, flat, _ in self.parts:
            sizes = [p.numel() for p in params]
            out.update({n: piece.view(p.shape) for n, p, piece in zip(names, params, flat.split(sizes))})
        return out

    def load(self, given):
        with torch.no_grad():
            for n, m in self.masters().items():
                m.copy_(given[n])

    @torch.no_grad()
    def place(self, quantized):
        for bits, _, _, flat, made in self.parts:
            made.copy_(quantizer(flat, bits) if quantized and bits else flat.to(torch.bfloat16))

    def step(self, share):
        flats = []
        for _, _, params, flat, _ in self.parts:
            flat.grad = torch.cat([p.grad.flatten() for p in params]).float()
            flats.append(flat)
            for p in params:
                p.grad = None
            if distributed.is_initialized():
                distributed.all_reduce(flat.grad, distributed.ReduceOp.AVG if flat.is_cuda else distributed.ReduceOp.SUM)
        norm = torch.nn.utils.clip_grad_norm_(flats, 1.0)
        for g in self.optimizer.param_groups:
            g["lr"] = self.lr * share * g["share"]
        self.optimizer.step()
        return norm


quantizer = fake_quantize


def body(model, ids, bos, window):
    """The layers of the class, with positions and masks of packed rows. [B, T] to hidden states [B, T, H]."""
    positions, full, sliding = demo.masks(ids, bos, window)
    out = model.model(input_ids=ids, position_ids=positions, use_cache=False,
                      attention_mask={"full_attention": full, "sliding_attention": sliding})
    return out.last_hidden_state


def token_losses(hidden, table, targets, cap):
    """Cross entropy of each token [N] and whether it was the likeliest, soft cap included."""
    logits = cap * torch.tanh((hidden @ table.t()).float() / cap)
    return torch.nn.functional.cross_entropy(logits, targets, reduction="none"), logits.argmax(-1) == targets


def prepare(config, device, balance, compiled):
    model = demo.make_dense(demo.initialize(demo.reference(config, "sdpa")), balance).to(device)
    if compiled:
        torch._dynamo.config.cache_size_limit = 64
        for layer in model.model.layers:
            layer.compile()
    return model


def save_state(path, weights, trained, steps, curve):
    path.mkdir(parents=True, exist_ok=True)
    torch.save({"master": {n: m.cpu() for n, m in weights.masters().items()}, "optimizer": weights.optimizer.state_dict(), "seconds": trained, "steps": steps, "curve": curve},
               path / "state.part")
    os.replace(path / "state.part", path / "state.pt")


def save_weights(path, weights, limit=15_500_000):
    """bfloat16, named as in the class, in as many files as the limit asks for."""
    path.mkdir(parents=True, exist_ok=True)
    part, size, number = {}, 0, 0
    for n, m in sorted(weights.masters().items()):
        t = m.detach().to(torch.bfloat16).cpu().contiguous()
        if size + t.nbytes > limit:
            save_file(part, path / f"weights-{number}.safetensors")
            part, size, number = {}, 0, number + 1
        part[n], size = t, size + t.nbytes
    save_file(part, path / f"weights-{number}.safetensors")


def held_out(a, length, count=64):
    """Rows of the test split, always the same."""
    stream = rows(a.tokenizer, "test", "held-out", length)
    taken = [next(stream) for _ in range(count)]
    return np.stack([t[0] for t in taken]), np.stack([t[1] for t in taken])


def task_cases(tokenizer, each, split="test", only=None):
    """Dialogues of every task, or of those in `only`: name -> [(ids, kinds)]."""
    import random
    from corpus.dialogue import render
    from corpus.tasks import TASKS
    encoder, rng, out = Encoder(tokenizer), random.Random("cases"), {}
    for name, (_, make) in sorted(TASKS.items()):
        if only and name not in only:
            continue
        made = encoder.encode([render(make(rng, split)) for _ in range(each)])
        out[name] = [(p + t, k) for p, t, k in made if len(p) + len(t) <= 512]
    return out


@torch.no_grad()
def exact(model, cases, bos, pad, window, cap, device):
    """Share of cases in which the likeliest token is right at every place the model writes: greedy decoding gives just this reply."""
    table = model.model.embed_tokens.weight
    shares = {}
    for name, items in cases.items():
        right = 0
        for at in range(0, len(items), 64):
            part = items[at:at + 64]
            ids = torch.full((64, 512), pad, device=device)
            kinds = torch.zeros((64, 512), dtype=torch.uint8)
            for i, (t, k) in enumerate(part):
                ids[i, :len(t)] = torch.tensor(t, device=device)
                kinds[i, :len(k)] = torch.from_numpy(k)
            hidden = body(model, ids, bos, window)
            _, hit = token_losses(hidden[:, :-1].flatten(0, 1), table, ids[:, 1:].flatten(), cap)
            written = kinds[:, 1:].to(device) == WRITTEN
            right += int((hit.view(64, -1) | ~written).all(1)[:len(part)].sum())
        shares[name] = right / max(1, len(items))
    return shares


def finish(ranks):
    if ranks > 1:
        distributed.barrier()
        distributed.destroy_process_group()


def main():
    a = arguments()
    begin = time.perf_counter()
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    resumed = (a.state / "state.pt").exists()
    # The stream of a resumed run begins where no earlier one was: its seed holds the seconds trained.
    seed = f"{a.seed}/{rank}" + (f"/{(a.state / 'state.pt').stat().st_mtime_ns}" if resumed else "") + (f"/{a.begin}" if a.begin else "")
    feed = Feed(a.tokenizer, max(1, a.workers // ranks), seed, a.length, a.batch)
    device = f"cuda:{int(os.environ.get('LOCAL_RANK', 0))}" if torch.cuda.is_available() else "cpu"
    if ranks > 1:
        if device != "cpu":
            torch.cuda.set_device(device)
        distributed.init_process_group("nccl" if device != "cpu" else "gloo")
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(a.seed)
    config = demo.text_config(**json.loads(a.config))
    window, cap = config["sliding_window"], config["final_logit_softcapping"]
    encoder = Encoder(a.tokenizer)
    model = prepare(config, device, a.balance, not a.no_compile)
    weights = Weights(model, a.lr, a.decay)
    if a.start_from and not (a.state / "state.pt").exists():
        given = {}
        for f in sorted(a.start_from.glob("weights-*.safetensors")):
            given.update(load_file(f))
        weights.load(given)
    trained, steps, curve, cold = a.begin, 0, [], 0
    if (a.state / "state.pt").exists():
        state = torch.load(a.state / "state.pt", map_location=device)
        weights.load(state["master"])
        weights.optimizer.load_state_dict(state["optimizer"])
        trained, steps, curve = state["seconds"], state["steps"], state["curve"]
        cold = 200
    global quantizer
    losses = token_losses
    if not a.no_compile:
        quantizer, losses = torch.compile(fake_quantize, dynamic=False), torch.compile(token_losses)
    table = model.model.embed_tokens.weight
    seen, test, waited, tokens = [], held_out(a, a.length), 0.0, 0

    def loss_of(ids, kinds):
        ids, kinds = torch.from_numpy(ids.astype(np.int64)).to(device, non_blocking=True), torch.from_numpy(kinds).to(device)
        hidden = body(model, ids, encoder.bos, window)
        each, hit = losses(hidden[:, :-1].flatten(0, 1), table, ids[:, 1:].flatten(), cap)
        return each, hit, kinds[:, 1:].flatten()

    def report():
        with torch.no_grad():
            sums = torch.zeros(3, device=device)
            for at in range(0, len(test[0]), a.batch):
                each, hit, kinds = loss_of(test[0][at:at + a.batch], test[1][at:at + a.batch])
                w = kinds == WRITTEN
                sums += torch.stack([(each * w).sum(), (hit & w).sum(), w.sum()])
        return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()

    print(f"{sum(m.numel() for m in weights.masters().values())} parameters, {device}, {a.workers} workers, set up in "
          f"{time.perf_counter() - begin:.0f} s", flush=True)
    last, first, mark = begin, True, (time.perf_counter(), 0)
    while True:
        now = time.perf_counter()
        trained, last = trained + (0 if first else now - last), now
        # All processes follow the clock of the first; asking it waits for the GPU, so it is done now and then.
        if steps % 20 == 0:
            clock = torch.tensor([trained, now - begin], dtype=torch.float64, device=device if ranks > 1 else "cpu")
            if ranks > 1:
                distributed.broadcast(clock, 0)
            trained, elapsed = clock.tolist()
            progress = trained / a.total_seconds
            if progress >= 1 or elapsed > a.run_seconds:
                break
        started = time.perf_counter()
        ids, kinds, hashes = feed.take()
        waited += time.perf_counter() - started
        seen.append(hashes)
        weights.place(progress >= a.quantize_from)
        each, hit, kinds = loss_of(ids, kinds)
        w = (kinds == WRITTEN).float() + a.context_weight * (kinds == CONTEXT)
        loss = (each * w).sum() / w.sum()
        loss.backward()
        # An optimizer that knows no gradients yet begins softly, wherever the schedule stands.
        norm = weights.step(rate(progress) * min(1.0, (cold + 1) / 200))
        steps, cold, tokens = steps + 1, cold + 1, tokens + ids.size * ranks
        if first:
            torch.cuda.synchronize() if device != "cpu" else None
            print(f"first step after {time.perf_counter() - begin:.0f} s", flush=True)
            last, first = time.perf_counter(), False
        if steps % 250 == 0 and rank == 0:
            if device != "cpu":
                torch.cuda.synchronize()
            written = (each * (kinds == WRITTEN)).sum().item() / (kinds == WRITTEN).sum().item()
            nll, top1 = report()
            spent = time.perf_counter() - mark[0]
            speed = (tokens - mark[1]) / spent
            curve.append({"seconds": round(trained, 1), "steps": steps, "train": round(written, 4), "held_out": round(nll, 4),
                          "held_out_top1": round(top1, 4), "tokens_per_s": round(speed), "quantized": progress >= a.quantize_from})
            print(f"step {steps} {trained:.0f} s ({progress:.2f}): train {written:.4f} held-out {nll:.4f} top-1 {top1:.4f} "
                  f"norm {norm.item():.2f} {speed / 1e3:.0f} k tokens/s, waited {waited:.0f} s", flush=True)
            mark = (time.perf_counter(), tokens)
    feed.close()
    if rank:
        return finish(ranks)
    save_state(a.state, weights, trained, steps, curve)
    weights.place(progress >= a.quantize_from)
    if a.weights:
        save_weights(a.weights, weights)
    nll, top1 = report()
    shares = exact(model, task_cases(a.tokenizer, 128), encoder.bos, encoder.pad, window, cap, device)
    distinct = len(np.unique(np.concatenate(seen))) if seen else 0
    dialogues = sum(map(len, seen))  # of the first process, where there are several
    summary = {"seconds": round(trained, 1), "steps": steps, "tokens_this_run": tokens, "dialogues_this_run": dialogues,
               "distinct_this_run": distinct, "held_out": nll, "held_out_top1": top1, "exact": shares, "curve": curve, "arguments": vars(a)}
    if a.weights:
        (a.weights / "summary.json").write_text(json.dumps(summary, indent=1, default=str))
    for name, share in shares.items():
        print(f"  {name:24} exact {share:.3f}")
    print(f"held-out {nll:.4f}, top-1 {top1:.4f}; {tokens / 1e6:.0f} M tokens, {dialogues} dialogues, {distinct} distinct; "
          f"{time.perf_counter() - begin:.0f} s")
    finish(ranks)


if __name__ == "__main__":
    main()
