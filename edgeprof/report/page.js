// The charts of the page, drawn by Plotly, whose script lies compressed in the page; theme and keys.
"use strict";
(() => {
  const root = document.documentElement;
  const themeButton = document.getElementById("theme");
  const charts = [...document.querySelectorAll("figure.chart")];
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)").matches;
  const GAP_PX = 24, ROW_PX = 19, AXIS_PX = 46, PAPER_PX = 680;
  const LETTER_PX = 7.4, SYMBOL_PX = 47;  // of Plotly's legend at 11 px
  let printing = false;

  const isDark = () => !printing &&
    (root.dataset.theme ? root.dataset.theme === "dark" : preferred.matches);

  async function inflated(id) {
    const packed = atob(document.getElementById(id).textContent);
    const bytes = Uint8Array.from(packed, (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

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
      height: inner + AXIS_PX, width, margin: { l: 58, r: 12, t: 0, b: AXIS_PX },
      paper_bgcolor: page, plot_bgcolor: page, font: { color: text, size: 12 },
      hovermode: chart.logarithmic ? "closest" : "x unified", hoversubplots: "axis",
      hoverdistance: 60, hoverlabel: { bgcolor: band, font: { color: text }, namelength: -1 },
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
    layout.xaxis = { ...axis, anchor: lowest,
      title: { text: chart.x_title, standoff: 6 }, ...(chart.logarithmic ? { type: "log", dtick: "D2" } : { type: "linear" }) };
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
      layout.xaxis.range = whole(chart);
    }
    const data = chart.traces.map((trace) => {
      const n = trace.panel ? trace.panel + 1 : "";
      return { ...trace, xaxis: "x", yaxis: `y${n}`, legend: `legend${n}` };
    });
    const config = { displaylogo: false, displayModeBar: !coarse, scrollZoom: false,
      modeBarButtons: [["zoom2d", "pan2d", "toImage"]] };
    return window.Plotly.react(place, data, layout, config);
  }

  const whole = (chart) => {
    const room = chart.duration_s > 0 ? 0.01 * chart.duration_s : 0.5;
    return [-room, chart.duration_s + room];
  };

  // Zooms by a factor around the middle and moves by a share of what is shown; null shows all.
  function look(figure, change) {
    const place = figure.querySelector(".drawing");
    const { chart } = figure;
    if (!change) {
      const all = chart.logarithmic ? { "xaxis.autorange": true, "yaxis.autorange": true }
        : { "xaxis.range": whole(chart) };
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

  function say(figure) {
    const [low, high] = figure.querySelector(".drawing").layout.xaxis.range;
    const digits = Math.max(0, Math.min(6, 2 - Math.floor(Math.log10(high - low))));
    figure.querySelector(".shown").textContent = figure.chart.logarithmic ? ""
      : `Shown: ${low.toFixed(digits)} s to ${high.toFixed(digits)} s`;
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
    place.on("plotly_relayout", () => say(figure));
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
