#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Batch-1 latency of encoders beside OpenVINO and ONNX Runtime, in turns.

    encoder_bench.py prepare DIR --minilm FOLDER     models for all from the same weights
    encoder_bench.py run DIR --out results.csv [--case deit] [--threads 1,2] [--rounds 5] [--seconds 1]

Each engine is a process of its own that idles while another's turn lasts; a round gives every engine one turn. The
table has the median and P95 of all calls of an engine. DeiT-Tiny has random weights: time does not depend on them."""
import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests" / "oracle"), str(HERE.parents[1] / "python")]

CASES = {"deit": None, "minilm128": 128, "minilm512": 512}
POLICIES = {"dense": {}, "merge13": {"merge": 13}, "half": {"keeps": [1, 1, .5, 1, 1, 1]}}
ENGINES = {"deit": ("freetoken dense", "freetoken merge13", "openvino int8", "openvino f32", "onnxruntime int8", "onnxruntime f32"),
           "minilm": ("freetoken dense", "freetoken half", "openvino int8", "openvino f32", "onnxruntime int8", "onnxruntime f32")}


def input_of(case):
    g = np.random.default_rng(1)
    if case == "deit":
        return g.standard_normal((3, 224, 224)).astype(np.float32)
    return np.concatenate([[101], g.integers(1000, 20000, CASES[case] - 2), [102]])


def prepare(args):
    import encoder_twin
    import peer_models
    from freetoken.convert import families
    from safetensors import safe_open
    d = args.folder
    d.mkdir(parents=True, exist_ok=True)
    state = encoder_twin.random_vit(1)
    families.vit(state, "deit-tiny").write(d / "deit.gguf", "q8_0")
    peer_models.vit(d / "deit.onnx", state, 3)
    with safe_open(args.minilm / "model.safetensors", "np") as f:
        tensors = {k: f.get_tensor(k) for k in f.keys()}
    config = json.loads((args.minilm / "config.json").read_text())
    m = families.bert(tensors, config, (args.minilm / "vocab.txt").read_text(encoding="utf-8").rstrip("\n").split("\n"), "minilm")
    m.write(d / "minilm.gguf", "q8_0")
    for case, n in CASES.items():
        if n:
            peer_models.bert(d / f"{case}.onnx", tensors, config, n)
        g = np.random.default_rng(2)
        inputs = [g.standard_normal((1, 3, 224, 224)).astype(np.float32) if not n else g.integers(1000, 20000, (1, n))
                  for _ in range(16)]
        peer_models.onnxruntime_int8(d / f"{case}.onnx", d / f"{case}-ort-int8.onnx")
        peer_models.openvino_int8(d / f"{case}.onnx", d / f"{case}-ov-int8.xml", inputs)


def opened(engine, case, folder, threads):
    """call() -> output vector"""
    name, form = engine.split()
    x = input_of(case)
    if name == "freetoken":
        import ftk
        import ftk_encoder
        m = ftk.Model(folder / ("deit.gguf" if case == "deit" else "minilm.gguf"))
        e = ftk_encoder.Encoder(m, n_threads=threads)
        e.reduce(**POLICIES[form])
        return lambda: e.embed(x, normalise=False)[0]
    if name == "openvino":
        import openvino
        path = folder / (f"{case}.onnx" if form == "f32" else f"{case}-ov-int8.xml")
        c = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"})
        r = c.create_infer_request()
        return lambda: r.infer([x[None]])[0][0]
    import onnxruntime
    o = onnxruntime.SessionOptions()
    o.intra_op_num_threads = threads
    path = folder / (f"{case}.onnx" if form == "f32" else f"{case}-ort-int8.onnx")
    s = onnxruntime.InferenceSession(str(path), o, providers=["CPUExecutionProvider"])
    feed = {s.get_inputs()[0].name: x[None]}
    return lambda: s.run(None, feed)[0][0]


def worker(args):
    call = opened(args.engine, args.case, args.folder, int(args.threads))
    for _ in range(3):
        out = call()
    print(json.dumps(np.asarray(out, np.float64).ravel().tolist()), flush=True)
    for line in sys.stdin:
        times, until = [], time.perf_counter() + float(line)
        while time.perf_counter() < until or len(times) < 3:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        print(json.dumps(times), flush=True)


def run(args):
    rows = []
    for case in args.case.split(",") if args.case else CASES:
        for threads in args.threads.split(","):
            names = ENGINES[case.rstrip("0123456789")]
            procs = {n: subprocess.Popen([sys.executable, __file__, "worker", str(args.folder), "--engine", n, "--case", case,
                                          "--threads", threads], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, text=True, env=dict(os.environ)) for n in names}
            out, times = {}, {n: [] for n in names}
            for n, p in procs.items():
                line = p.stdout.readline()
                if line:
                    out[n] = np.array(json.loads(line))
            for _ in range(args.rounds):
                for n in out:
                    procs[n].stdin.write(f"{args.seconds}\n")
                    procs[n].stdin.flush()
                    times[n] += json.loads(procs[n].stdout.readline())
            for p in procs.values():
                p.stdin.close()
                p.wait()
            exact = out["onnxruntime f32"]
            for n in names:
                if n not in out:
                    continue
                ms, y = np.array(times[n]) * 1e3, out[n]
                rows.append([case, threads, n, f"{np.median(ms):.2f}", f"{np.percentile(ms, 95):.2f}", len(ms),
                             f"{y @ exact / np.linalg.norm(y) / np.linalg.norm(exact):.5f}"])
                print(*rows[-1], sep=",", flush=True)
    with open(args.out, "a", newline="") as f:
        w = csv.writer(f)
        if f.tell() == 0:
            w.writerow(["case", "threads", "engine", "median_ms", "p95_ms", "calls", "cosine_with_f32"])
        w.writerows(rows)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("prepare", "run", "worker"))
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--minilm", type=pathlib.Path)
    p.add_argument("--engine")
    p.add_argument("--case", default="")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=1.0)
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("encoders.csv"))
    args = p.parse_args()
    {"prepare": prepare, "run": run, "worker": worker}[args.what](args)


main()
