"""ROUGE and BLEU of many random pairs of texts, and stems of many random words, beside those of
rouge-score, sacrebleu and NLTK; the other metrics by tests/metrics/metrics_test.

usage: against_metrics.py BUILD [N_PAIRS [SEED]]     needs rouge-score, sacrebleu, scikit-learn, scipy
"""

import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../fixtures"))
import make_metrics


def words(rng, n):
    """Words that most rules of the stemmer look at."""
    parts = "ational tional enci anci izer bli alli entli eli ousli ization ation ator alism iveness fulness ousness aliti iviti biliti fulli logi icate ative alize iciti ical ful ness al ance ence er ic able ible ant ement ment ent ion sion tion ou ism ate iti ous ive ize ed ing eed ied ies sses s y e ll at bl iz tt zz ss".split()
    letters = "aeiouybcdflmnrstwxz"
    for _ in range(n):
        yield "".join(rng.choices(letters, k=rng.randrange(5))) + "".join(
            rng.choices(parts, k=rng.randrange(1, 3)))


def main():
    build, n = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 500
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 7)
    wanted = [make_metrics.score_texts(*make_metrics.pair(rng)) for _ in range(n)]
    # Two words of which one is the stem of the other have all in common, if we find it too.
    from nltk.stem.porter import PorterStemmer

    stemmer = PorterStemmer()
    for word in words(rng, 20 * n):
        wanted.append(make_metrics.score_texts(word, stemmer.stem(word) + " x"))
    lines = "".join(json.dumps({k: w[k] for k in ("predicted", "reference")}) + "\n" for w in wanted)
    out = subprocess.run([os.path.join(build, "tests/compare/score")], input=lines, text=True,
                         capture_output=True, check=True).stdout.splitlines()
    assert len(out) == len(wanted)
    worst = {"plain": 0, "stemmed": 0, "bleu": 0}
    for w, line in zip(wanted, out):
        got = json.loads(line)
        for key in worst:
            a, b = ([v] if key == "bleu" else v for v in (w[key], got[key]))
            off = max(abs(x - y) for x, y in zip(a, b))
            if off > 1e-6:
                print(f"{key} of {w['predicted']!r} and {w['reference']!r}: {a}, not {b}")
            worst[key] = max(worst[key], off)
    print(f"{len(wanted)} pairs, worst difference: {worst}")
    return max(worst.values()) > 1e-6


if __name__ == "__main__":
    sys.exit(main())
