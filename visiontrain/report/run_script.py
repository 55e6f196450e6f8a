"""What the page of a run does: its tables are sorted, and the boxes of its gallery are judged at any score.

Plain JavaScript without a library. Without it the page tells the same, at one score and in one order.
"""

from __future__ import annotations

SCRIPT = """\
"use strict";

// Tables: a click on a header sorts, a second one the other way; what has no value stays at the end.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const valueOf = (row) => row.cells[column].dataset.value;
    const isText = column === 0;
    const before = head.getAttribute("aria-sort");
    const isFalling = before ? before === "ascending" : !isText;
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const [x, y] = [valueOf(a), valueOf(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = isText ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
      return isFalling ? -order : order;
    });
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", isFalling ? "descending" : "ascending");
    table.tBodies[0].append(...rows);
  }));
}

// The gallery: hits within each class first, then what is ignored, then what is left over across classes.
const MATCH_IOU = 0.5;

function parts(a, b) {
  const side = (low, high) => Math.max(0, Math.min(a[high], b[high]) - Math.max(a[low], b[low]));
  const area = (c) => (c[2] - c[0]) * (c[3] - c[1]);
  const common = side(0, 2) * side(1, 3);
  return { union: area(a) + area(b) - common, own: area(a), common };
}

function iou(a, b) {
  const { common, union } = parts(a, b);
  return union > 0 ? common / union : 0;
}

function isInside(a, region) {
  const { common, own } = parts(a, region);
  return own > 0 && common / own >= MATCH_IOU;
}

// Pairs each of `found`, highest score first, with the free one of `truth` that it overlaps most.
function match(found, truth, fits) {
  const pairs = new Map();
  const taken = new Set();
  for (const one of found) {
    let best = null, most = MATCH_IOU;
    for (const box of truth) {
      if (taken.has(box) || !fits(one, box)) continue;
      const overlap = iou(one.box, box.box);
      if (overlap >= most) [best, most] = [box, overlap];
    }
    if (best) { pairs.set(one, best); taken.add(best); }
  }
  return { pairs, taken };
}

function boxesOf(figure, kind) {
  return [...figure.querySelectorAll(`g.${kind}`)].map((element) => ({
    element, kind, label: element.dataset.label, score: Number(element.dataset.score),
    box: element.dataset.box.split(" ").map(Number),
  }));
}

function judge(shot, least) {
  const sameClass = (a, b) => a.label === b.label;
  const kept = shot.found.filter((one) => one.score >= least);
  const hits = match(kept, shot.truth, sameClass);
  let loose = kept.filter((one) => !hits.pairs.has(one));
  const once = match(loose, shot.ignored, sameClass).pairs;
  const passed = new Set(loose.filter((one) =>
    once.has(one) || shot.crowd.some((region) => sameClass(one, region) && isInside(one.box, region.box))));
  loose = loose.filter((one) => !passed.has(one));
  const crossed = match(loose, shot.truth.filter((box) => !hits.taken.has(box)), () => true);
  for (const one of shot.found) {
    one.element.style.display = one.score < least ? "none" : "";
    const other = passed.has(one) ? "passed" : crossed.pairs.has(one) ? "wrong" : "false";
    const verdict = hits.pairs.has(one) ? "hit" : other;
    one.element.setAttribute("class", `found ${verdict}`);
  }
  for (const box of shot.truth) {
    const verdict = hits.taken.has(box) ? "seen" : crossed.taken.has(box) ? "wrong" : "missed";
    box.element.setAttribute("class", `truth ${verdict}`);
  }
  const counts = {
    missed: shot.truth.length - hits.taken.size - crossed.taken.size,
    false: loose.length - crossed.pairs.size, wrong: crossed.pairs.size,
  };
  shot.tally.textContent =
    `${counts.missed} missed, ${counts.false} false alarm${counts.false === 1 ? "" : "s"}, ${counts.wrong} wrong class`;
}

const slider = document.getElementById("score");
if (slider) {
  const gallery = document.querySelector(".gallery");
  const shots = [...gallery.querySelectorAll("figure.boxes")].map((figure) => ({
    found: boxesOf(figure, "found"), truth: boxesOf(figure, "truth"), ignored: boxesOf(figure, "ignored.once"),
    crowd: boxesOf(figure, "ignored.crowd"), tally: figure.querySelector(".tally"),
  }));
  const shown = document.getElementById("score-shown");
  const show = (least) => {
    shown.value = least.toFixed(3);
    shots.forEach((shot) => judge(shot, least));
  };
  const best = Number(slider.dataset.best);
  slider.addEventListener("input", () => show(slider.valueAsNumber));
  document.getElementById("score-reset").addEventListener("click", () => { slider.value = best; show(best); });
  for (const box of document.querySelectorAll(".controls input[type=checkbox]")) {
    const follow = () => gallery.classList.toggle(`hide-${box.value}`, !box.checked);
    box.addEventListener("change", follow);
    follow();
  }
  show(best);
}
"""
