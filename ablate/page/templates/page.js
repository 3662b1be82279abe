// Sorts, searches, hides and highlights rows, shows values at the pointer, and saves figures. The page is complete
// without it.
"use strict";
(() => {
  const table = document.querySelector(".scores table");
  if (!table) return;
  const rows = Array.from(table.querySelectorAll("tbody tr[data-row]"));
  const order = new Map(rows.map((row, index) => [row, index]));
  const home = new Map(rows.map((row) => [row, row.parentNode]));
  const announcement = document.getElementById("announcement");
  const UNITS = { s: 1, min: 60, h: 3600, d: 86400, K: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 };

  // The number at the beginning of a cell, times its unit; NaN without a number.
  const number = (cell) => {
    const found = /^[<+]?(-?[\d.]+)(?:\s*(s|min|h|d|[KMGTPE])\b)?/.exec(cell.textContent.trim().replace("−", "-"));
    return found ? parseFloat(found[1]) * (UNITS[found[2]] || 1) : NaN;
  };
  const compare = (column, numeric) => (a, b) => {
    const [x, y] = [a.cells[column], b.cells[column]];
    if (!numeric) return x.textContent.trim().localeCompare(y.textContent.trim());
    const [m, n] = [number(x), number(y)];
    return Number.isNaN(m) || Number.isNaN(n) ? Number.isNaN(m) - Number.isNaN(n) : m - n;
  };

  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const way = before === "ascending" ? "descending" : before === "descending" ? null : "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      const numeric = head.classList.contains("number");
      const sorted = [...rows].sort((a, b) => order.get(a) - order.get(b));
      if (way) {
        head.setAttribute("aria-sort", way);
        const by = compare(column, numeric);
        const empty = (row) => numeric && Number.isNaN(number(row.cells[column]));
        sorted.sort((a, b) => empty(a) - empty(b) || (way === "ascending" ? by(a, b) : by(b, a)));
      }
      // Sorted rows are in one body, without the rules between groups; otherwise each is in the body of its group.
      table.classList.toggle("sorted", way !== null);
      sorted.forEach((row) => (way ? table.tBodies[0] : home.get(row)).append(row));
      announcement.textContent = way ? `Sorted by ${button.textContent.trim()}, ${way}` : "Original order";
    });
  });

  document.getElementById("help").hidden = false;  // without the script nothing can be sorted or hidden
  const restore = document.getElementById("restore");
  const marks = new Map();  // label of a row -> its elements, here and in the figures
  document.querySelectorAll("[data-row]").forEach((element) => {
    const label = element.dataset.row;
    if (!marks.has(label)) marks.set(label, []);
    marks.get(label).push(element);
  });
  const setHidden = (element, hidden) => hidden ? element.setAttribute("hidden", "") : element.removeAttribute("hidden");
  const count = () => {
    const hidden = rows.filter((row) => row.hidden).length;
    restore.hidden = hidden === 0;
    restore.textContent = `Show ${hidden} hidden ${hidden === 1 ? "row" : "rows"}`;
  };
  const crossed = new Set();  // labels of rows hidden by their cross, which a search does not bring back
  rows.forEach((row) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "hide";
    button.textContent = "×";
    button.setAttribute("aria-label", `Hide row ${row.dataset.row}`);
    button.title = "Hide this row, here and in the figures";
    row.cells[0].prepend(button);
    button.addEventListener("click", () => {
      crossed.add(row.dataset.row);
      marks.get(row.dataset.row).forEach((element) => setHidden(element, true));
      count();
      restore.focus();
    });
  });
  const filter = document.getElementById("filter");
  restore.addEventListener("click", () => {
    document.querySelectorAll("[data-row]").forEach((element) => setHidden(element, false));
    filter.value = "";
    crossed.clear();
    count();
  });
  filter.addEventListener("input", () => {
    const text = filter.value.trim().toLowerCase();
    const found = new Set(rows.filter((row) => row.textContent.toLowerCase().includes(text)).map((row) => row.dataset.row));
    crossed.forEach((label) => found.delete(label));
    document.querySelectorAll("[data-row]").forEach((element) => setHidden(element, !found.has(element.dataset.row)));
    count();
  });
  count();

  // Pointing at a row, here or in a figure, lets the other rows of all figures fade.
  const main = document.querySelector("main");
  let pointed;
  main.addEventListener("pointerover", (event) => {
    const label = event.target.closest("[data-row]")?.dataset.row;
    if (label === pointed) return;
    main.classList.toggle("pointed", label !== undefined);
    marks.get(pointed)?.forEach((element) => element.classList.remove("current"));
    marks.get(label)?.forEach((element) => element.classList.add("current"));
    pointed = label;
  });

  // The values of a mark beside the pointer at once; without the script a browser shows its <title> after a while.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  main.addEventListener("pointermove", (event) => {
    const title = event.target.closest("svg [data-row]")?.querySelector("title");
    tip.hidden = !title;
    if (!title) return;
    tip.textContent = title.textContent;
    tip.style.left = `${Math.max(0, Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8))}px`;
    const below = event.clientY + 16;
    tip.style.top = `${below + tip.offsetHeight < innerHeight ? below : event.clientY - tip.offsetHeight - 8}px`;
  });
  main.addEventListener("pointerleave", () => { tip.hidden = true; });

  // Figures as files, in the colors of light mode on white paper.
  const PALETTE = {{ palette | tojson }};
  const drawing = (svg) => {
    const copy = svg.cloneNode(true);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    const [, , width, height] = svg.getAttribute("viewBox").split(" ");
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    Object.entries({ width, height, fill: PALETTE.paper }).forEach(([name, value]) => paper.setAttribute(name, value));
    copy.prepend(paper);
    copy.querySelectorAll("[hidden]").forEach((element) => element.remove());
    return new XMLSerializer().serializeToString(copy).replace(/var\(--(\w+)\)/g, (_, name) => PALETTE[name]);
  };
  const save = (address, name) => {
    const link = document.createElement("a");
    link.href = address;
    link.download = name;
    link.click();
  };
  const SCALE = 4; // pixels of a PNG for each point of the drawing
  const savePng = (svg, name) => {
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [image.width * SCALE, image.height * SCALE];
      const context = canvas.getContext("2d");
      context.drawImage(image, 0, 0, canvas.width, canvas.height);
      save(canvas.toDataURL("image/png"), name);
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(drawing(svg))}`;
  };
  document.querySelectorAll("figure > svg").forEach((svg) => {
    const figure = svg.parentNode;
    const section = svg.closest("section").querySelector("h2").id;
    const name = `${section}-${figure.querySelector("h3").textContent}`.toLowerCase().replace(/[^a-z0-9]+/g, "-");
    ["svg", "png"].forEach((kind) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "download";
      button.textContent = `Save ${kind.toUpperCase()}`;
      button.addEventListener("click", () => {
        if (kind === "png") return savePng(svg, `${name}.png`);
        return save(`data:image/svg+xml;charset=utf-8,${encodeURIComponent(drawing(svg))}`, `${name}.svg`);
      });
      figure.append(button);
    });
  });

  // A link to the runs of a row opens their list.
  const open = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const list = target?.closest("details");
    if (list && !list.open) { list.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", open);
  open();
})();
