#!/usr/bin/env python3
"""Fits compute/cuda/host/costs.h to a chip.

    bench-conv paths --backend cuda --shapes networks --random 100 --json times.json
                                             # on the chip: every path's time for each shape
    tests/bench/fit_costs.py times.json      # prints the rows of costs.h, and what they choose

A path's cost is a sum of terms (counts that its X_path.cu makes of a problem), each times its
nanoseconds here, none of them negative. They are those with the least squares of the relative
errors, where a path that is far from the best of a shape counts little: whether it costs three times
or four times as much changes nothing. Then, where the cheapest by cost is not the fastest, the two
paths' times of that shape count more, and it is fitted again, for as long as the choices get better;
last, coefficients are moved by up to a tenth where that makes choices better.

Each row is {"shape": NAME, "path": NAME, "us": MEDIAN, "terms": "NAME=COUNT*NS ..."}: one a line, or
a list.
"""
import json
import math
import sys

NEAR, FAR = 1.3, 2.0  # times the best of its shape: counts in full, hardly at all
MISS = 1.05  # a choice that takes so many times the best
ROUNDS = 60
MOST_WEIGHT = 12.0


def read(names):
    rows = []
    for name in names:
        with open(name, encoding="utf-8") as file:
            text = file.read()
        try:
            found = json.loads(text)
        except json.JSONDecodeError:
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
        rows += [row for row in found if row.get("us", 0) > 0 and "terms" in row]
    for row in rows:
        named = [term.split("=") for term in row["terms"].split()]
        row["names"] = [name for name, _ in named]
        row["terms"] = [float(product.split("*")[0]) for _, product in named]
    rows = [row for row in rows if row["terms"]]
    if not rows:
        sys.exit("fit_costs.py: no row has a path's time and terms")
    return rows


def grouped(rows, key):
    groups = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def set_weights(shapes):
    for rows in shapes.values():
        best = min(row["us"] for row in rows)
        for row in rows:
            ratio = row["us"] / best
            row["weight"] = 1.0 if ratio < NEAR else 0.3 if ratio < FAR else 0.05


def fit(rows):
    """Nanoseconds of each term, not negative, by coordinate descent."""
    count = len(rows[0]["terms"])
    lines = [([term / row["us"] / 1e3 for term in row["terms"]], row["weight"]) for row in rows]
    product = [[sum(w * a[i] * a[j] for a, w in lines) for j in range(count)] for i in range(count)]
    right = [sum(w * a[i] for a, w in lines) for i in range(count)]
    costs = [0.0] * count
    for _ in range(5000):
        moved = 0.0
        for i in range(count):
            if product[i][i] <= 0:
                continue
            left = right[i] - sum(product[i][j] * costs[j] for j in range(count))
            new = max(0.0, costs[i] + left / product[i][i])
            moved = max(moved, abs(new - costs[i]) * math.sqrt(product[i][i]))
            costs[i] = new
        if moved < 1e-9:
            break
    return [float(f"{cost:.4g}") for cost in costs]


def cost_us(costs, row):
    return sum(c * t for c, t in zip(costs[row["path"]], row["terms"])) / 1e3


def importance(row):
    """Random shapes keep the fit honest, but networks are made of the others."""
    return 0.2 if row["shape"].startswith("random") else 1.0


def judge(shapes, costs):
    """The sum of the logarithms of chosen over best by importance, and the misses: ratio, chosen,
    best."""
    total, misses = 0.0, []
    for rows in shapes.values():
        chosen = min(rows, key=lambda row: cost_us(costs, row))
        best = min(rows, key=lambda row: row["us"])
        ratio = chosen["us"] / best["us"]
        total += math.log(ratio) * importance(chosen)
        if ratio > MISS:
            misses.append((ratio, chosen, best))
    return total, misses


def amount(misses):
    return sum(importance(chosen) for _, chosen, _ in misses)


def improve(paths, shapes, costs):
    total, misses = judge(shapes, costs)
    least, kept = amount(misses) + 20 * total, dict(costs)
    for _ in range(ROUNDS):
        again = set()
        for _, chosen, best in misses:
            for row in (chosen, best):
                row["weight"] = min(row["weight"] * 1.6, MOST_WEIGHT)
                again.add(row["path"])
        for path in again:
            costs[path] = fit(paths[path])
        total, misses = judge(shapes, costs)
        if amount(misses) + 20 * total < least:
            least, kept = amount(misses) + 20 * total, dict(costs)
    return kept


def score(shapes, costs):
    total, misses = judge(shapes, costs)
    return 20 * total + sum((math.log(miss[0]) * 20 + 1) * importance(miss[1]) for miss in misses)


def polish(shapes, costs):
    """One coefficient at a time by a tenth or less, where the choices get clearly better."""
    least = score(shapes, costs)
    for step in (0.1, 0.05):
        for path, found in costs.items():
            for i, cost in enumerate(found):
                for times in (1 - step, 1 + step):
                    found[i] = float(f"{cost * times:.4g}")
                    now = score(shapes, costs)
                    if now < least - 0.1:
                        least, cost = now, found[i]
                    found[i] = cost
    return costs


def main():
    rows = read(sys.argv[1:])
    paths, shapes = grouped(rows, "path"), grouped(rows, "shape")
    set_weights(shapes)
    costs = improve(paths, shapes, {path: fit(paths[path]) for path in paths})
    costs = polish(shapes, {path: list(found) for path, found in costs.items()})
    for path, found in costs.items():
        named = zip(paths[path][0]["names"], found)
        terms = ", ".join('{"%s", %g}' % term for term in named)
        print(f"COSTS({path}) = {{{terms}}};")
    total, misses = judge(shapes, costs)
    weight = sum(importance(rows[0]) for rows in shapes.values())
    print(f"\n{len(shapes)} shapes; chosen over best: geometric mean "
          f"{math.exp(total / weight):.4f}, more than {MISS}: {len(misses)}", file=sys.stderr)
    for ratio, chosen, best in sorted(misses, key=lambda miss: -miss[0]):
        print(f"  {ratio:.2f}  {chosen['shape']}: {chosen['path']} {chosen['us']} us, best "
              f"{best['path']} {best['us']} us", file=sys.stderr)


if __name__ == "__main__":
    main()
