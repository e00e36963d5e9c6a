"""Mutation run: a small mistake is put into the source, and the tests that should see it are run.

    python -m tools.mutants --seed 1 --count 200     mutants drawn evenly over the areas of tests/mutants/areas.toml
    python -m tools.mutants --area lease --count 10  drawn from this area alone
    python -m tools.mutants --named                  the ones that tests/mutants/named.toml names

`sources` finds the mutants of a file, `trial` runs tests against a copy of the sources with one of them in it, and
`lists` reads the files of tests/mutants. Why no library: docs/decisions/0022-mutation-run.md.
"""
