# SPDX-License-Identifier: Apache-2.0
"""FreeToken and llama.cpp in turn on the same files, and the ratios.

Owns: the order of measurements, the watch over the machine, the tables. What llama.cpp is asked
to do is peer_worker.py's, how it is loaded llama_peer.py's; FreeToken is its own `bench` and
`eval` commands.

Every measurement is a process of its own: warm-up, prefill of a length, decode at that depth.
Within a round both engines take turns at every length, and the order turns around from round to
round; a ratio compares neighbours in time, and the table shows medians of rounds with least and
most. A measurement during which other processes or the hypervisor took more than --quiet of the
CPU time is repeated (--retries), then kept and counted as disturbed: a spinning thread pool
loses far more than its share to a neighbour, so busy machines do not give fair figures.

    peer_bench.py --models DIR --freetoken build/freetoken --text wiki.txt --out bench/results/NAME
"""
import argparse
import csv
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "oracle"))

MODELS = ["smollm2-135m-q8_0", "smollm2-135m-q4_1", "qwen2.5-coder-0.5b-q4_k_m", "gemma-3-270m-q4_k_m"]
LENGTHS = [0, 512, 2048, 4096, 8192]


# ------------------------------------------------------------------- the watch

def cpu_seconds():
    """CPU seconds of the whole machine: busy, and stolen by the hypervisor."""
    fields = [int(f) for f in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    tick = os.sysconf("SC_CLK_TCK")
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq) / tick, steal / tick


def run_watched(command):
    """Runs a command: its standard output and the share of CPU time that others took meanwhile."""
    start, (busy, steal) = time.monotonic(), cpu_seconds()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = child.communicate()
    if child.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {err.decode()[-500:]}")
    usage = os.times()
    own = usage.children_user + usage.children_system - run_watched.before
    run_watched.before = usage.children_user + usage.children_system
    elapsed = (time.monotonic() - start) * os.cpu_count()
    busy_now, steal_now = cpu_seconds()
    others = max(0.0, (busy_now - busy) - own) + (steal_now - steal)
    return out, others / elapsed


run_watched.before = 0.0


# ------------------------------------------------------------------ both engines

class Engines:
    def __init__(self, args):
        self.args = args

    def speed(self, engine, model, length):
        """{"prefill": tok/s or absent, "decode": tok/s, "peak_rss": bytes}, share of others."""
        n = self.args.decode_tokens
        if engine == "llama.cpp":
            out, others = run_watched([sys.executable, HERE / "peer_worker.py", "speed", model, str(length), str(n)])
            return json.loads(out), others
        command = [self.args.freetoken, "bench", model, "--depth", str(length), "--decode-tokens", str(n),
                   "--repeat", "1", "--warmup", "1", "--threads", str(self.args.threads), "--json", "-",
                   "--prefill", str(length or 512)]
        out, others = run_watched(command)
        result = {}
        for case in json.loads(out)["cases"]:
            if case["kind"] == "decode" or length:
                result[case["kind"]] = case["median_tok_s"]
                result[case["kind"] + "_share"] = case.get("share_of_int8_peak") or case.get("share_of_bandwidth")
            result["peak_rss"] = max(result.get("peak_rss", 0), case["peak_rss_bytes"])
        return result, others

    def quality(self, engine, model, text, kv):
        a = self.args
        shape = [str(a.context), str(a.score), str(a.docs)]
        if engine == "llama.cpp":
            out, _ = run_watched([sys.executable, HERE / "peer_worker.py", "quality", model, text, *shape, kv])
        else:
            out, _ = run_watched([a.freetoken, "eval", model, "--text", text, "--context", shape[0], "--score",
                                  shape[1], "--docs", shape[2], "--kv", kv, "--json"])
        return json.loads(out)["perplexity"]


def measure(engines, engine, model, length, args):
    """The least disturbed of at most 1 + retries runs."""
    best = None
    for attempt in range(1 + args.retries):
        result, others = engines.speed(engine, model, length)
        if best is None or others < best["others"]:
            best = result | {"others": round(others, 4), "attempts": attempt + 1}
        if others <= args.quiet:
            break
        time.sleep(2)
    return best


def run_speed(engines, name, model, args, rows, keep):
    """Adds to rows those of one model that are missing: a dict per round, length and engine. Both
    engines' measurements of a length belong together and are kept together, by keep()."""
    done = {(r["round"], r["length"]) for r in rows if r["model"] == name}
    for turn in range(args.rounds):
        for length in args.lengths:
            if (turn, length) in done:
                continue
            if time.monotonic() > args.until:
                return
            order = ["llama.cpp", "freetoken"] if turn % 2 == 0 else ["freetoken", "llama.cpp"]
            for engine in order:
                row = {"model": name, "round": turn, "length": length, "engine": engine}
                row |= measure(engines, engine, model, length, args)
                rows.append(row)
                print(f"  {name} round {turn} length {length:5d} {engine:10s} "
                      f"prefill {row.get('prefill') or 0:8.1f}  decode {row.get('decode') or 0:7.1f} tok/s  "
                      f"peak {row['peak_rss'] / 2**20:6.1f} MiB  others {row['others']:.1%}", flush=True)
            keep()


# -------------------------------------------------------------------- the tables

def summarise(rows):
    """Per model, what and length: medians, least, most of both and of the ratios of each round."""
    summary = []
    for name in dict.fromkeys(r["model"] for r in rows):
        for what in ("prefill", "decode", "peak_rss"):
            for length in sorted({r["length"] for r in rows}):
                sides = {engine: {r["round"]: r[what] for r in rows if r["model"] == name and r["engine"] == engine
                                  and r["length"] == length and r.get(what)} for engine in ("llama.cpp", "freetoken")}
                peer, ours = sides["llama.cpp"], sides["freetoken"]
                both = sorted(set(peer) & set(ours))
                if not both:
                    continue
                ratios = [ours[r] / peer[r] for r in both]
                entry = {"model": name, "what": what, "length": length, "rounds": len(both)}
                for side, values in (("peer", [peer[r] for r in both]), ("ours", [ours[r] for r in both]),
                                     ("ratio", ratios)):
                    entry[side] = {"median": statistics.median(values), "min": min(values), "max": max(values)}
                shares = [r[what + "_share"] for r in rows if r["model"] == name and r["length"] == length
                          and r.get(what + "_share")]
                entry["share"] = statistics.median(shares) if shares else None
                summary.append(entry)
    return summary


def spread(values, digits=0):
    return f"{values['median']:.{digits}f} ({values['min']:.{digits}f}–{values['max']:.{digits}f})"


def markdown(card, summary, quality, rows, args):
    counts = [e["rounds"] for e in summary]
    n_rounds = f"{min(counts)} to {max(counts)}" if counts and min(counts) < max(counts) else str(max(counts, default=0))
    disturbed = sum(r["others"] > args.quiet for r in rows)
    lines = ["# FreeToken and llama.cpp, in turn on the same machine", "",
             f"{n_rounds} rounds; medians with least and most; {args.threads} threads. llama.cpp: flash attention, "
             "F16 cache, micro-batch 512. FreeToken: INT8 cache. Warm-up not counted. "
             f"{disturbed} of {len(rows)} measurements had other load above {args.quiet:.0%}.", ""]
    titles = {"prefill": ("Prefill, tok/s (share: of the INT8 peak measured beside it)", 0, 1),
              "decode": ("Decode, tok/s (share: of the read bandwidth measured beside it)", 1, 1),
              "peak_rss": ("Peak resident memory of the process, MiB (llama.cpp's with its Python, "
                           f"{card['python_rss'] / 2**20:.0f} MiB)", 0, 2**20)}
    for what, (title, digits, unit) in titles.items():
        part = [e for e in summary if e["what"] == what]
        if not part:
            continue
        lines += [f"## {title}", "", "| model | length | llama.cpp | FreeToken | ratio | share |",
                  "|---|---|---|---|---|---|"]
        for e in part:
            share = f"{e['share']:.0%}" if e["share"] else ""
            scaled = {side: {k: v / unit for k, v in e[side].items()} for side in ("peer", "ours")}
            lines.append(f"| {e['model']} | {e['length']} | {spread(scaled['peer'], digits)} | "
                         f"{spread(scaled['ours'], digits)} | {spread(e['ratio'], 2)} | {share} |")
        lines.append("")
    if quality:
        lines += [f"## Perplexity of {args.score} tokens after {args.context}, {args.docs} documents", "",
                  "| model | llama.cpp, F16 cache | FreeToken, F16 cache | FreeToken, INT8 cache |", "|---|---|---|---|"]
        for name, q in quality.items():
            base = q["llama.cpp f16"]
            cells = " | ".join(f"{q[k]:.4f} ({q[k] / base - 1:+.2%})" for k in ("freetoken f16", "freetoken int8"))
            lines.append(f"| {name} | {base:.4f} | {cells} |")
        lines.append("")
    lines += ["## Machine", "", "| | |", "|---|---|"]
    lines += [f"| {key} | {value} |" for key, value in card.items() if key != "python_rss"]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- machine card

def first_line(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().split("\n")[0]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def read(path, default="unknown"):
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return default


def machine_card(args):
    cpu = dict(line.split("\t: ", 1) for line in read("/proc/cpuinfo").split("\n\n")[0].replace("\t\t", "\t")
               .split("\n") if "\t: " in line)
    flags = cpu.get("flags", cpu.get("Features", "")).split()
    wanted = [f for f in flags if f.startswith(("avx", "fma", "f16c", "amx", "asimd", "sve", "i8mm"))]
    memory = next(line.split()[1] for line in read("/proc/meminfo").splitlines() if line.startswith("MemTotal"))
    worker = "import json,sys; sys.path.insert(0, sys.argv[1]); import llama_peer, peer_worker; print(json.dumps(" \
             "[llama_peer.version(), llama_peer.system_info(), peer_worker.memory('VmRSS')]))"
    peer, features, python_rss = json.loads(first_line([sys.executable, "-c", worker, str(HERE)]))
    return {"cpu": cpu.get("model name", platform.processor()), "cores": os.cpu_count(), "features": " ".join(wanted),
            "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            "huge pages": read("/sys/kernel/mm/transparent_hugepage/enabled"),
            "memory": f"{int(memory) / 2**20:.1f} GiB", "kernel": platform.release(),
            "compiler": first_line(["cc", "--version"]), "python": platform.python_version(),
            "freetoken": first_line([args.freetoken, "--version"]),
            "freetoken commit": first_line(["git", "-C", str(HERE), "describe", "--always", "--dirty"]),
            "llama.cpp": peer, "llama.cpp features": features.replace("|", "").replace(" = 1", ""), "python_rss": python_rss,
            "load average at start": "%.2f %.2f %.2f" % os.getloadavg()}


def numbers(text):
    return [int(float(t[:-1]) * 1024) if t.endswith("k") else int(t) for t in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=pathlib.Path, required=True, help="folder of the GGUF files")
    parser.add_argument("--only", default=",".join(MODELS), help="names without .gguf, separated by commas")
    parser.add_argument("--freetoken", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--text", type=pathlib.Path, help="for perplexity; none: speed only")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for results")
    parser.add_argument("--lengths", type=numbers, default=LENGTHS, help="default 0,512,2k,4k,8k")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--resume", action="store_true", help="keep what OUT holds, measure what is missing")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing new after that long")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--decode-tokens", type=int, default=32)
    parser.add_argument("--quiet", type=float, default=0.05, help="share of CPU time others may take")
    parser.add_argument("--retries", type=int, default=2)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--score", type=int, default=256)
    parser.add_argument("--docs", type=int, default=16)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    args.freetoken = args.freetoken.resolve()
    args.until = time.monotonic() + args.seconds
    engines, card = Engines(args), machine_card(args)
    rows, quality = [], {}
    if args.resume and (args.out / "peers.json").exists():
        before = json.loads((args.out / "peers.json").read_text())
        rows, quality, card = before["measurements"], before["quality"], before["machine"]
    with tempfile.TemporaryDirectory() as folder:
        text = None
        if args.text:
            from wikitext import detokenise
            text = pathlib.Path(folder) / "text.txt"
            raw = args.text.read_text(encoding="utf-8")
            text.write_text(detokenise(raw) if "wikitext" in args.text.name else raw, encoding="utf-8")
        for name in args.only.split(","):
            model = (args.models / f"{name}.gguf").resolve()
            if text and name not in quality:
                quality[name] = {f"{engine} {kv}": engines.quality(engine, model, text, kv)
                                 for engine, kv in (("llama.cpp", "f16"), ("freetoken", "f16"), ("freetoken", "int8"))}
                print(f"  {name} perplexity", {k: round(v, 4) for k, v in quality[name].items()}, flush=True)
            run_speed(engines, name, model, args, rows, lambda: save(args, card, rows, quality))
    save(args, card, rows, quality)
    print((args.out / "peers.md").read_text())


def save(args, card, rows, quality):
    """After each length, so that an interrupted run keeps what it has."""
    summary = summarise(rows)
    (args.out / "peers.json").write_text(json.dumps(
        {"machine": card, "quality": quality, "summary": summary, "measurements": rows}, indent=1) + "\n")
    (args.out / "peers.md").write_text(markdown(card, summary, quality, rows, args))
    columns = ["model", "round", "length", "engine", "prefill", "decode", "peak_rss", "others", "attempts"]
    with open(args.out / "peers.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
