// The quantization explorer: ranges, bits and a value to move; the grid, the restored value and the error to see.
// Its numbers are torchao's: formulas (1) to (3) of M01 in single precision, ties to even.
window.courseExplorer = (() => {
  "use strict";
  const f = Math.fround;
  const EPS = f(1.1920928955078125e-7); // the smallest scale of torchao's MinMaxObserver

  /** Round half to even, as torch.round does. */
  function round(x) {
    const low = Math.floor(x);
    if (x - low !== 0.5) return Math.round(x);
    return low % 2 === 0 ? low : low + 1;
  }

  const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

  /** Formula (3): scale, zero point and the integers, for a range of real numbers. */
  function qparams(smallest, largest, bits, symmetric) {
    const qmax = 2 ** (bits - 1) - 1;
    const qmin = symmetric ? -qmax : -qmax - 1;
    const a = f(Math.min(smallest, 0));
    const b = f(Math.max(largest, 0));
    const width = symmetric ? f(Math.max(-a, b)) : f(b - a);
    const scale = Math.max(f(width / (symmetric ? qmax : qmax - qmin)), EPS);
    const zeroPoint = symmetric ? 0 : clamp(qmin - round(f(a / scale)), qmin, qmax);
    return { scale, zeroPoint, qmin, qmax };
  }

  /** Formulas (1) and (2): the integer for x, and the real number that it stands for. */
  function quantize(x, { scale, zeroPoint, qmin, qmax }) {
    const q = clamp(round(f(f(x) * f(1 / scale))) + zeroPoint, qmin, qmax);
    return { q, restored: f((q - zeroPoint) * scale) };
  }

  const WORDS = {
    zh: {
      smallest: "資料的最小值",
      largest: "資料的最大值",
      bits: "位元數",
      symmetric: "對稱（z = 0）",
      x: "要量化的值 x",
      picture: "數線：直線是格點，深色的帶子是能表示的範圍；下面是誤差。",
      inside: "在範圍內：誤差最多半格。",
      outside: "在範圍外：被 clamp 到邊上。",
      error: "誤差",
      steps: "格",
      integers: "整數",
    },
    en: {
      smallest: "Smallest value of the data",
      largest: "Largest value of the data",
      bits: "Bits",
      symmetric: "Symmetric (z = 0)",
      x: "Value x to quantize",
      picture: "A number line: the lines are the grid, the dark band is the range it covers; below it the error.",
      inside: "Inside the range: at most half a step off.",
      outside: "Outside the range: clamped to its border.",
      error: "error",
      steps: "steps",
      integers: "integers",
    },
  };
  const LIMIT = 4; // the number line goes from -4 to 4
  const LINE = 46; // where the number line is drawn
  const MIDDLE = 126; // and the error's zero
  const signed = (x, digits) => x.toFixed(digits).replace("-", "−");

  function element(name, attributes = {}, ...children) {
    const space = name.startsWith("svg:") ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
    const made = document.createElementNS(space, name.replace("svg:", ""));
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function slider(label, value, id) {
    const input = element("input", { type: "range", min: -LIMIT, max: LIMIT, step: 0.05, value, id });
    const shown = element("span", { class: "value", "aria-hidden": "true" }); // the slider tells its value itself
    return { input, shown, row: element("label", { for: id }, element("span", {}, label), input, shown) };
  }

  function attach(box, number) {
    const words = WORDS[document.documentElement.lang.startsWith("zh") ? "zh" : "en"];
    const id = (name) => `explorer-${number}-${name}`;
    const smallest = slider(words.smallest, -1, id("smallest"));
    const largest = slider(words.largest, 1.5, id("largest"));
    const x = slider(words.x, 0.8, id("x"));
    const bits = element("select", { id: id("bits") });
    for (let n = 2; n <= 8; n++) bits.append(element("option", n === 4 ? { selected: "" } : {}, String(n)));
    const symmetric = element("input", { type: "checkbox", id: id("symmetric") });
    const picture = element("svg:svg", { role: "img", "aria-label": words.picture });
    const numbers = element("p", { class: "quant-explorer__numbers" });
    const verdict = element("p", { role: "status" });

    function update(event) {
      const moved = event?.target;
      // The largest value stays above the smallest.
      if (moved === smallest.input && +smallest.input.value > +largest.input.value) largest.input.value = smallest.input.value;
      if (moved === largest.input && +largest.input.value < +smallest.input.value) smallest.input.value = largest.input.value;
      for (const { input, shown } of [smallest, largest, x]) shown.textContent = signed(+input.value, 2);
      const params = qparams(+smallest.input.value, +largest.input.value, +bits.value, symmetric.checked);
      const { scale, zeroPoint, qmin, qmax } = params;
      const value = +x.input.value;
      const { q, restored } = quantize(value, params);
      const [low, high] = [qmin, qmax].map((code) => (code - zeroPoint) * scale);
      const outside = value < low - scale / 2 || value > high + scale / 2;
      numbers.textContent =
        `${words.integers} ${signed(qmin, 0)} … ${qmax}, s = ${scale.toPrecision(4)}, z = ${signed(zeroPoint, 0)}; ` +
        `x = ${signed(value, 2)}, q = ${signed(q, 0)}, x̂ = ${signed(restored, 4)}, ` +
        `${words.error} ${signed(value - restored, 4)} = ${signed((value - restored) / scale, 2)} ${words.steps}`;
      verdict.textContent = outside ? words.outside : words.inside;
      draw(picture, params, low, high, value, restored);
    }

    for (const input of [smallest.input, largest.input, x.input, bits, symmetric]) {
      input.addEventListener("input", update);
    }
    const choices = element(
      "div",
      { class: "quant-explorer__choices" },
      element("label", { for: id("bits") }, element("span", {}, words.bits), bits),
      element("label", { for: id("symmetric") }, symmetric, element("span", {}, words.symmetric)),
    );
    box.replaceChildren(smallest.row, largest.row, choices, x.row, picture, numbers, verdict);
    update();
    addEventListener("resize", update);
  }

  function draw(picture, params, low, high, value, restored) {
    const width = clamp(picture.clientWidth, 280, 640); // so that its text is readable on a phone
    picture.setAttribute("viewBox", `0 0 ${width} 172`);
    const at = (x) => width / 2 + (clamp(x, -LIMIT, LIMIT) * (width - 24)) / (2 * LIMIT);
    const parts = [element("svg:rect", { class: "range", x: at(low), y: LINE - 9, width: Math.max(at(high) - at(low), 1), height: 18 })];
    for (let code = params.qmin; code <= params.qmax; code++) {
      const place = at((code - params.zeroPoint) * params.scale);
      const zero = code === params.zeroPoint;
      parts.push(element("svg:path", { class: zero ? "zero" : "grid", d: `M${place} ${LINE - (zero ? 16 : 9)}V${LINE + (zero ? 16 : 9)}` }));
    }
    for (let tick = -LIMIT; tick <= LIMIT; tick++) {
      parts.push(element("svg:text", { x: at(tick), y: LINE + 34 }, signed(tick, 0)));
    }
    // The error over the whole line, in steps; what is more than two steps off leaves the picture.
    let path = "";
    for (let i = 0, pen = "M"; i <= 640; i++) {
      const real = -LIMIT + (2 * LIMIT * i) / 640;
      const off = (real - quantize(real, params).restored) / params.scale;
      if (Math.abs(off) <= 2) path += `${pen}${at(real).toFixed(1)} ${(MIDDLE - off * 20).toFixed(1)}`;
      pen = Math.abs(off) <= 2 ? "L" : "M";
    }
    parts.push(
      element("svg:path", { class: "half", d: `M0 ${MIDDLE - 10}H${width}M0 ${MIDDLE + 10}H${width}` }),
      element("svg:path", { class: "error", d: path }),
      element("svg:path", { class: "jump", d: `M${at(value)} 12L${at(restored)} ${LINE - 10}` }),
      element("svg:circle", { class: "real", cx: at(value), cy: 10, r: 5 }),
      element("svg:circle", { class: "restored", cx: at(restored), cy: LINE, r: 5 }),
    );
    picture.replaceChildren(...parts);
  }

  return { qparams, quantize, attach };
})();
