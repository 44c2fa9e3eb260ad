// The page is complete without this script: it only sorts and filters tables.
"use strict";

const collator = new Intl.Collator("en", { numeric: true });

function sortKey(cell) {
  if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
  const text = cell.textContent.trim();
  // "≥ 372", "1,024" and "99.9 %" sort as numbers, an en dash (no value) after all of them.
  const number = text.replace(/^[≥≤±]\s*/, "").replace(/,/g, "").replace(/\s*%$/, "");
  if (text === "–") return null;
  return number !== "" && Number.isFinite(Number(number)) ? Number(number) : text;
}

function compare(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a === "number" && typeof b === "number") return a - b;
  return collator.compare(String(a), String(b));
}

function sortBy(table, header, column) {
  const descending = header.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const keyed = Array.from(table.tBodies[0].rows, (row) => [sortKey(row.cells[column]), row]);
  keyed.sort(([a], [b]) => {
    const order = compare(a, b);
    return descending && a !== null && b !== null ? -order : order;
  });
  table.tBodies[0].append(...keyed.map(([, row]) => row));
}

for (const table of document.querySelectorAll("table.sortable")) {
  Array.from(table.tHead.rows[0].cells).forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sortBy(table, header, column));
    header.append(button);
  });
}

const filter = document.getElementById("cell-filter");
if (filter) {
  const rows = Array.from(document.getElementById("cell-table").tBodies[0].rows);
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const count = document.getElementById("cell-count");
  filter.closest(".filter").hidden = false;
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, i) => {
      row.hidden = !words.every((word) => texts[i].includes(word));
      shown += !row.hidden;
    });
    count.textContent = words.length ? `${shown} of ${rows.length}` : "";
  });
}

