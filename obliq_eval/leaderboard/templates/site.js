"use strict";
// Tables are whole without this script; it adds sorting and filtering.

const NEXT = { none: "first", first: "second", second: "none" };

function valueOf(row, column) {
  const cell = row.cells[column];
  if (cell.classList.contains("unknown")) return null;
  return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
}

function compare(a, b) {
  return typeof a === "number" && typeof b === "number" ? a - b
    : String(a).localeCompare(String(b), "en", { numeric: true, sensitivity: "base" });
}

function sortable(table) {
  const body = table.tBodies[0];
  const given = [...body.rows];
  const headings = [...table.tHead.querySelectorAll("th[scope=col]")];
  const state = { heading: null, step: "none" };

  function sort(heading, column) {
    state.step = state.heading === heading ? NEXT[state.step] : "first";
    state.heading = heading;
    headings.forEach((other) => other.removeAttribute("aria-sort"));
    const rows = [...given];
    if (state.step !== "none") {
      const falling = heading.classList.contains("number") === (state.step === "first");
      heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
      rows.sort((one, other) => {
        const [a, b] = [valueOf(one, column), valueOf(other, column)];
        if (a === null || b === null) return (a === null) - (b === null);
        return falling ? compare(b, a) : compare(a, b);
      });
    }
    body.append(...rows);
  }

  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => sort(heading, column));
  });
}

function filterable(form) {
  const table = document.getElementById(form.dataset.for);
  const rows = [...table.tBodies[0].rows];
  const count = form.querySelector(".count");
  const nothing = document.querySelector(".nothing");

  function filter() {
    const words = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const scored = form.elements.scored.value;
    const oracles = form.elements.oracles.checked;
    rows.forEach((row) => {
      row.hidden = !words.every((word) => row.dataset.find.includes(word))
        || (scored !== "" && row.dataset.scored !== scored)
        || (!oracles && "oracle" in row.dataset);
    });
    const shown = rows.filter((row) => !row.hidden).length;
    count.textContent = shown === rows.length ? `${rows.length} systems` : `${shown} of ${rows.length} systems`;
    nothing.hidden = shown > 0;
  }

  form.hidden = false;
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
}

document.querySelectorAll("table[data-sortable]").forEach(sortable);
document.querySelectorAll("form[data-for]").forEach(filterable);
