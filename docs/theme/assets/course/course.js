// What the pages do beyond links and text. Everything here is an extra: without it the pages read and link just the same.
(() => {
  "use strict";
  const assets = new URL("..", document.currentScript.src);

  // Language switch: the twin page has the same anchors, so stay in the section that is being read.
  const sections = [...document.querySelectorAll("article :is(h2, h3, h4)[id]")];
  const currentSection = () => {
    const top = 120; // below the header
    let current = "";
    for (const heading of sections) {
      if (heading.getBoundingClientRect().top > top) break;
      current = "#" + heading.id;
    }
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.closest("article")) {
      const at = target.getBoundingClientRect().top;
      if (at >= 0 && at < innerHeight) return location.hash; // they came for this one, and it is in sight
    }
    return current;
  };
  for (const link of document.querySelectorAll("a[data-twin]")) {
    const page = link.getAttribute("href");
    const follow = () => link.setAttribute("href", page + currentSection());
    for (const event of ["pointerdown", "focus", "click"]) link.addEventListener(event, follow);
  }

  // Light and dark: what the system prefers, until the reader wants the other one. Both languages share the choice.
  const system = matchMedia("(prefers-color-scheme: dark)");
  const preferred = () => (system.matches ? "slate" : "default");
  const keep = (scheme) => {
    try {
      if (scheme === preferred()) localStorage.removeItem(window.__pt2e_scheme);
      else localStorage.setItem(window.__pt2e_scheme, scheme);
    } catch {
      // no storage: the choice lasts as long as the page
    }
  };
  let chosen = Boolean(window.__pt2e_scheme_kept);
  for (const button of document.querySelectorAll("[data-scheme-toggle]")) {
    button.addEventListener("click", () => {
      const scheme = document.body.dataset.mdColorScheme === "slate" ? "default" : "slate";
      document.body.dataset.mdColorScheme = scheme;
      chosen = scheme !== preferred();
      keep(scheme);
    });
  }
  system.addEventListener("change", () => {
    if (!chosen) document.body.dataset.mdColorScheme = preferred();
  });

  // The navigation drawer of narrow windows: a checkbox of the theme, here with a button, the keyboard and Escape.
  const drawer = document.getElementById("__drawer");
  const drawerButton = document.querySelector("[data-drawer]");
  if (drawer && drawerButton) {
    drawer.addEventListener("change", () => drawerButton.setAttribute("aria-expanded", String(drawer.checked)));
    drawerButton.addEventListener("click", () => {
      drawer.click();
      if (drawer.checked) document.querySelector(".md-nav--primary a.md-nav__link")?.focus();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !drawer.checked) return;
      drawer.click();
      drawerButton.focus();
    });
  }

  // What scrolls sideways inside itself can be scrolled with the keyboard.
  const wide = ".md-typeset__scrollwrap, .table-scroll, .output > pre, .arithmatex, .pt2e-figure";
  const reach = () => {
    const boxes = [...document.querySelectorAll(wide)].map((box) => [box, box.scrollWidth > box.clientWidth + 1]);
    for (const [box, scrolls] of boxes) {
      if (scrolls) box.setAttribute("tabindex", "0");
      else box.removeAttribute("tabindex");
    }
  };
  addEventListener("load", () => (window.requestIdleCallback ?? setTimeout)(reach));
  addEventListener("resize", reach);
  addEventListener("toggle", reach, true); // a <details> was opened

  // On paper nothing is folded.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("article details:not([open])")];
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
  });

  const script = (path) =>
    new Promise((resolve, reject) => {
      const element = document.createElement("script");
      element.src = new URL(path, assets);
      element.onload = resolve;
      element.onerror = () => reject(new Error(`cannot load ${path}`));
      document.head.append(element);
    });

  // The quantization explorer, where a page has one.
  const explorers = document.querySelectorAll(".quant-explorer");
  if (explorers.length) script("course/explorer.js").then(() => explorers.forEach(window.courseExplorer.attach));

  // Search: loaded when it is first used.
  const dialog = document.getElementById("course-search");
  if (!dialog) return;
  let loading = null;
  const load = () => {
    const parts = ["vendor/minisearch/minisearch-7.2.0.js", "vendor/stemmer/stemmer-2.0.1.js", "course/search.js"];
    loading ??= Promise.all(parts.map(script))
      .then(() => window.courseSearch.attach(dialog))
      .catch(() => {
        loading = null;
        dialog.querySelector('[role="status"]').textContent = dialog.dataset.failed;
      });
    return loading;
  };
  const open = () => {
    if (dialog.open) return;
    dialog.showModal();
    dialog.querySelector("input").select();
    load();
  };
  for (const button of document.querySelectorAll("[data-search-open]")) {
    button.addEventListener("click", open);
    button.addEventListener("pointerenter", load, { once: true });
  }
  const typing = (element) => element.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName);
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.altKey) return;
    const command = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k";
    const plain = !event.ctrlKey && !event.metaKey && (event.key === "/" || event.key === "s") && !typing(event.target);
    if (!command && !plain) return;
    event.preventDefault();
    open();
  });
})();
