// The charts of the page, drawn by Plotly, whose script lies compressed in the page; what the pointer
// tells; theme and keys.
"use strict";
(() => {
  const root = document.documentElement;
  const themeButton = document.getElementById("theme");
  const charts = [...document.querySelectorAll("figure.chart")];
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)").matches;
  const GAP_PX = 24, ROW_PX = 19, AXIS_PX = 46, PAPER_PX = 680;
  const LETTER_PX = 7.4, SYMBOL_PX = 47;  // of Plotly's legend at 11 px
  const MARK_PX = 6, POINTER_PX = 14, MOST_TOLD = 6;
  const LEFT_PX = 58, RIGHT_PX = 12;
  let printing = false;

  const isDark = () => !printing &&
    (root.dataset.theme ? root.dataset.theme === "dark" : preferred.matches);

  async function inflated(id) {
    const packed = atob(document.getElementById(id).textContent);
    const bytes = Uint8Array.from(packed, (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  const unpacked = ({ dtype, bdata }) => new (dtype === "f8" ? Float64Array : Float32Array)(
    Uint8Array.from(atob(bdata), (c) => c.charCodeAt(0)).buffer);

  function colours() {
    const probe = document.createElement("span");
    if (printing) probe.style.colorScheme = "light";
    document.body.append(probe);
    const found = ["page", "text", "line", "band"].map((name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    });
    probe.remove();
    return found;
  }

  // Panels one under the other over one axis, each with its title and its names above it.
  function layoutOf(chart, width) {
    const [page, text, line, band] = colours();
    const names = chart.panels.map((_, i) => chart.traces
      .filter((trace) => trace.panel === i && trace.showlegend !== false).map((t) => t.name));
    const entries = names.map((some) => LETTER_PX * Math.max(8, ...some.map((n) => n.length)));
    const above = names.map((some, i) => {
      const perRow = Math.max(1, Math.floor((width - 70) / (entries[i] + SYMBOL_PX)));
      return GAP_PX + ROW_PX * Math.ceil(some.length / perRow);
    });
    const inner = chart.panels.reduce((sum, p, i) => sum + above[i] + p.height, 0);
    const axis = { gridcolor: line, zeroline: false, linecolor: line, automargin: false };
    const layout = {
      height: inner + AXIS_PX, width, margin: { l: LEFT_PX, r: RIGHT_PX, t: 0, b: AXIS_PX },
      paper_bgcolor: page, plot_bgcolor: page, font: { color: text, size: 12 },
      // Over the timeline Plotly only says where the pointer is: its labels name the nearest of all.
      hovermode: chart.logarithmic ? "closest" : "x", hoveranywhere: !chart.logarithmic,
      hoverdistance: chart.logarithmic ? 60 : -1, spikedistance: -1,
      hoverlabel: { bgcolor: band, font: { color: text }, namelength: -1 },
      dragmode: coarse ? false : "pan", annotations: [], modebar: { orientation: "h" }, uirevision: "kept",
    };
    let top = 0;
    chart.panels.forEach((panel, i) => {
      const n = i ? i + 1 : "";
      const ceiling = 1 - (top + above[i]) / inner;
      layout[`yaxis${n}`] = {
        ...axis, domain: [Math.max(0, ceiling - panel.height / inner), ceiling],
        fixedrange: !chart.logarithmic, type: chart.logarithmic ? "log" : undefined,
        rangemode: panel.unit && panel.unit !== "°C" && panel.unit !== "MHz" ? "tozero" : "normal",
        ...(panel.lanes ? { type: "category", categoryarray: panel.lanes, showgrid: false,
          range: [-0.6, panel.lanes.length - 0.4] } : {}),
        ...(chart.logarithmic ? { exponentformat: "SI", dtick: "D2" } : {}),
      };
      layout[`legend${n}`] = {
        orientation: "h", x: 0, xanchor: "left", y: ceiling, yanchor: "bottom",
        entrywidth: entries[i], bgcolor: "rgba(0,0,0,0)", font: { color: text, size: 11 },
      };
      layout.annotations.push({
        text: `<b>${panel.title}</b>${panel.unit ? ` (${panel.unit})` : ""}`, showarrow: false,
        xref: "paper", yref: "paper", x: 0, xanchor: "left", y: 1 - top / inner, yanchor: "top",
      });
      top += above[i] + panel.height;
    });
    const lowest = chart.panels.length > 1 ? `y${chart.panels.length}` : "y";
    layout.xaxis = { ...axis, anchor: lowest, title: { text: chart.x_title, standoff: 6 },
      ...(chart.logarithmic ? { type: "log", dtick: "D2" } : { type: "linear", showspikes: true,
        spikemode: "across", spikesnap: "cursor", spikethickness: -1, spikecolor: text }) };
    if (chart.stamp) {
      layout.annotations.push({ text: chart.stamp, showarrow: false, xref: "paper", yref: "paper",
        x: 1, xanchor: "right", xshift: coarse ? 0 : -90, y: 1, yanchor: "top", font: { color: "#d55e00", size: 12 } });
    }
    return layout;
  }

  function draw(figure) {
    const chart = figure.chart;
    const place = figure.querySelector(".drawing");
    const layout = layoutOf(chart, printing ? PAPER_PX : place.clientWidth);
    if (figure.drawn) {  // what the reader looks at stays
      for (const axis of chart.logarithmic ? ["xaxis", "yaxis"] : ["xaxis"]) {
        layout[axis].range = place.layout[axis].range;
        layout[axis].autorange = place.layout[axis].autorange;
      }
      layout.dragmode = place.layout.dragmode;
    } else if (!chart.logarithmic) {
      layout.xaxis.range = whole(figure);
    }
    const data = chart.traces.map(({ told, panel, ...trace }) => {
      const n = panel ? panel + 1 : "";
      return { ...trace, xaxis: "x", yaxis: `y${n}`, legend: `legend${n}`,
        ...(chart.logarithmic ? {} : { hoverinfo: "none" }) };
    });
    const config = { displaylogo: false, displayModeBar: !coarse, scrollZoom: false,
      modeBarButtons: [["zoom2d", "pan2d", "toImage"]] };
    return window.Plotly.react(place, data, layout, config);
  }

  // With room for a mark at either end, however narrow the chart is.
  function whole(figure) {
    const [from, to] = figure.chart.shown_s;
    const width = figure.querySelector(".drawing").clientWidth - LEFT_PX - RIGHT_PX;
    const share = Math.max(0.01, MARK_PX / Math.max(100, width - 2 * MARK_PX));
    const room = to > from ? share * (to - from) : 0.5;
    return [from - room, to + room];
  }

  // Zooms by a factor around the middle and moves by a share of what is shown; null shows all.
  function look(figure, change) {
    const place = figure.querySelector(".drawing");
    const { chart } = figure;
    if (!change) {
      const all = chart.logarithmic ? { "xaxis.autorange": true, "yaxis.autorange": true }
        : { "xaxis.range": whole(figure) };
      return window.Plotly.relayout(place, all);
    }
    const moved = ([low, high]) => {
      const middle = (low + high) / 2 + change.move * (high - low);
      const half = (high - low) / 2 / change.zoom;
      return [middle - half, middle + half];
    };
    const wanted = { "xaxis.range": moved(place.layout.xaxis.range) };
    if (chart.logarithmic && change.zoom !== 1) {
      wanted["yaxis.range"] = moved(place.layout.yaxis.range);
    }
    return window.Plotly.relayout(place, wanted);
  }

  const LOOKS = {
    "+": { zoom: 2, move: 0 }, "-": { zoom: 0.5, move: 0 }, "0": null,
    ArrowLeft: { zoom: 1, move: -0.25 }, ArrowRight: { zoom: 1, move: 0.25 },
  };
  LOOKS["="] = LOOKS["+"];
  LOOKS.Home = LOOKS["0"];

  const rangeOf = (figure) => figure.querySelector(".drawing").layout.xaxis.range;

  // In seconds, as finely as what is shown can be told apart, or `more` digits finer.
  function seconds(figure, time, more = 0) {
    const [low, high] = rangeOf(figure);
    const digits = Math.max(0, Math.min(6, 2 + more - Math.floor(Math.log10(high - low))));
    return `${time.toFixed(digits)} s`;
  }

  function say(figure) {
    figure.querySelector(".shown").textContent = figure.chart.logarithmic ? ""
      : `Shown: ${rangeOf(figure).map((one) => seconds(figure, one)).join(" to ")}`;
  }

  // The spans of a trace that contain a time; what has no length counts within `reach`.
  function spansAt({ told, x }, time, reach) {
    const found = told.texts.filter((_, i) => {
      const from = x[i * told.stride], to = x[i * told.stride + told.end];
      return to > from ? from <= time && time < to : Math.abs(time - from) <= reach;
    });
    const more = found.length - MOST_TOLD;
    return more > 1 ? [...found.slice(0, MOST_TOLD), `and ${more} more`] : found;
  }

  // The reading that stands at a time: the nearest, if it is no further off than readings usually
  // are, or the chart draws a line there, which it does only where no reading is missing.
  function readingAt({ told, x, y }, time, shown) {
    let after = 0, end = x.length;
    while (after < end) {
      const middle = (after + end) >> 1;
      if (x[middle] > time) end = middle; else after = middle + 1;
    }
    const near = [after - 1, after].filter((i) => Number.isFinite(y[i]))
      .sort((a, b) => Math.abs(x[a] - time) - Math.abs(x[b] - time));
    if (!near.length) return [];
    const isFar = Math.abs(x[near[0]] - time) > told.usual_s;
    if (isFar && near.length < 2) return [];
    const when = isFar ? `, read at ${shown(x[near[0]])}` : "";
    const value = y[near[0]].toFixed(told.digits);
    return [`${told.name} ${value} ${told.unit} (${told.source}${when})`];
  }

  // Beside the pointer, and in sight: the time, and what the session has of it.
  function tell(figure, event, time) {
    const place = figure.querySelector(".drawing"), box = figure.querySelector(".told");
    const [low, high] = rangeOf(figure);
    const reach = MARK_PX * (high - low) / figure.getBoundingClientRect().width;
    const found = figure.chart.traces.flatMap((trace, i) => {
      if (!trace.told || place.data[i].visible === "legendonly") return [];
      return trace.told.texts ? spansAt(trace, time, reach)
        : readingAt(trace, time, (one) => seconds(figure, one, 1));
    });
    box.replaceChildren(...[seconds(figure, time, 1), ...found].map((line) => {
      const part = document.createElement("p");
      part.textContent = line;
      return part;
    }));
    box.hidden = false;
    const frame = figure.getBoundingClientRect();
    const x = event.clientX - frame.left, isRight = x > frame.width / 2;
    const room = (isRight ? x : frame.width - x) - POINTER_PX;
    box.style.maxWidth = `min(30rem, ${room}px)`;
    box.style.left = isRight ? "auto" : `${x + POINTER_PX}px`;
    box.style.right = isRight ? `${frame.width - x + POINTER_PX}px` : "auto";
    const lowest = Math.min(frame.height, innerHeight - frame.top) - box.offsetHeight;
    box.style.top = `${Math.max(0, Math.min(event.clientY - frame.top + POINTER_PX, lowest))}px`;
  }

  function listen(figure) {
    figure.querySelector(".keys").hidden = false;
    for (const button of figure.querySelectorAll("button[data-look]")) {
      button.addEventListener("click", () => look(figure, LOOKS[button.dataset.look]));
    }
    const place = figure.querySelector(".drawing");
    place.addEventListener("keydown", (event) => {
      if (!(event.key in LOOKS) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      look(figure, LOOKS[event.key]);
    });
    if (coarse) {  // a swipe belongs to the page; a tap still comes as a click and tells
      place.addEventListener("touchstart", (event) => event.stopPropagation(),
        { capture: true, passive: true });
    }
    const box = figure.querySelector(".told");
    const hide = () => { box.hidden = true; };
    if (!figure.chart.logarithmic) {
      place.on("plotly_hover", ({ event, xvals }) => tell(figure, event, xvals[0]));
      place.on("plotly_unhover", hide);
      place.on("plotly_relayouting", hide);
    }
    place.on("plotly_relayout", () => { hide(); say(figure); });
    say(figure);
  }

  async function start() {
    const [script, made] = await Promise.all([inflated("plotly"), inflated("charts")]);
    const element = document.createElement("script");
    element.textContent = script;
    document.head.append(element);
    const all = JSON.parse(made);
    for (const figure of charts) {
      figure.chart = all[figure.id];
      for (const trace of figure.chart.traces) {
        for (const axis of ["x", "y"]) if (trace[axis].bdata) trace[axis] = unpacked(trace[axis]);
      }
      figure.querySelector(".drawing").replaceChildren();
      await draw(figure);
      figure.drawn = true;
      listen(figure);
    }
  }

  function redraw() {
    themeButton.textContent = isDark() ? "Light" : "Dark";
    for (const figure of charts) if (figure.drawn) draw(figure);
  }

  // A table too wide for the window scrolls by itself, by keys too.
  function reach() {
    for (const place of document.querySelectorAll(".wide")) {
      if (place.scrollWidth > place.clientWidth) place.tabIndex = 0;
      else place.removeAttribute("tabindex");
    }
  }

  themeButton.hidden = false;
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    redraw();
  });
  preferred.addEventListener("change", redraw);
  let width = innerWidth, waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (innerWidth === width) return;  // a phone's address bar comes and goes
      width = innerWidth;
      redraw();
      reach();
    }, 100);
  });
  for (const [event, onPaper] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => {
      printing = onPaper;
      redraw();
    });
  }
  redraw();
  reach();
  start().catch((error) => {
    for (const figure of charts) {
      if (!figure.drawn) {
        figure.querySelector(".shown").textContent = `This browser could not draw it: ${error}`;
      }
    }
  }).finally(() => { root.dataset.ready = "yes"; });
})();
