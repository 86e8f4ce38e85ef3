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
      if (at >= 0 && at < innerHeight / 2) return location.hash; // they came for this one, and it is in sight
    }
    return current;
  };
  for (const link of document.querySelectorAll("a[data-twin]")) {
    const page = link.getAttribute("href");
    const follow = () => link.setAttribute("href", page + currentSection());
    for (const event of ["pointerdown", "focus", "click"]) link.addEventListener(event, follow);
  }

  // The drawer's button is a label: give it the keyboard.
  for (const label of document.querySelectorAll('label[for="__drawer"][role="button"]')) {
    label.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      label.click();
    });
  }

  // What scrolls sideways inside itself can be scrolled with the keyboard.
  const wide = ".md-typeset__scrollwrap, .table-scroll, .output > pre, .arithmatex, .pt2e-figure";
  const reach = () => {
    for (const box of document.querySelectorAll(wide)) {
      const scrolls = box.scrollWidth > box.clientWidth + 1;
      if (scrolls) box.setAttribute("tabindex", "0");
      else box.removeAttribute("tabindex");
    }
  };
  addEventListener("load", reach);
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

  // Search: loaded when it is first used.
  const dialog = document.getElementById("course-search");
  if (!dialog) return;
  const script = (path) =>
    new Promise((resolve, reject) => {
      const element = document.createElement("script");
      element.src = new URL(path, assets);
      element.onload = resolve;
      element.onerror = () => reject(new Error(`cannot load ${path}`));
      document.head.append(element);
    });
  let loading = null;
  const load = () => {
    loading ??= Promise.all([script("vendor/minisearch/minisearch-7.2.0.js"), script("course/search.js")])
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
