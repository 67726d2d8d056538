"""The page that a fork without a record starts from; `{name}` lines are where the tables go."""

from __future__ import annotations

TEMPLATE = """\
# What this repository carries on top of its upstream

This is a fork that follows its upstream closely and carries a few fixes of its own. Each fix is a branch
`topic/<name>` with a pull request; the branch `local` is upstream plus the fixes that have landed, and it is
what releases are made from. `tools/recut` moves all of it to a newer upstream and keeps the tables below.

* A release with local fixes is tagged `v<upstream release>-local<NN>`; upstream at a date, without local
  fixes, is tagged `v<upstream release>.<YYYYMMDD>`.
* Before a branch moves, its old tip is pinned by an annotated tag `archive/<label>-<7 hex>`. Fetch them with
  `git fetch origin '+refs/tags/archive/*:refs/tags/archive/*'`.
* To check every claim on this page against the repository: `tools/recut verify`.

The tables between the marker lines are written by `tools/recut record`. The rest of this page is written by
people, and kept as it is.

## Base

{base}

## Pins

The requirements of the project file that decide what upstream code runs.

{pins}

## Topics

Issue, pull request and note are the maintainer's to fill in.

{topics}

## Carried on local

The commits of `local` between the base and this record, oldest first.

{carried}

## Re-cuts

{re-cuts}

## Archive tags

Every tip that was given up or that something was built from, pinned on the server.

{archive}

## No longer carried

Every patch that a re-cut dropped, and the upstream commit that replaces it.

{superseded}

## Evidence

What was built from which commit. Rows are the maintainer's to add; `tools/recut record` keeps them.

{evidence}
"""
