// Search: the index of one language, made in the browser from the sections in search/index.json, and its dialog.
// Chinese has no spaces, so a run of Han characters is indexed as its overlapping pairs (and single characters): every
// word of two or more characters is then found wherever it stands. Names stay whole and come apart as well:
// `torch.export` is also `torch` and `export`, `HistogramObserver` also `histogram` and `observer`.
(() => {
  "use strict";

  const HAN = /^\p{Script=Han}/u;
  const RUN = /\p{Script=Han}+|[\p{Script=Latin}\p{Script=Greek}\p{M}\p{N}_]+(?:[.:/'’-]+[\p{Script=Latin}\p{Script=Greek}\p{M}\p{N}_]+)*/gu;
  const ENGLISH = /^[a-z]{4,}$/;
  const JOINTS = /[._:/'’-]+/;
  const HUMPS = /(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/;
  // Words of questions: they count, but a section is not about them.
  const FILLER = /[的麼嗎呢嘛]|^(時候|如何|怎樣|為何|可以|哪些|哪裡|是否)$/u;
  const SMALL = new Set("a an and are as at be by can did do does for from had has have how i if in into is it its my no not of on or so that the their then there this to up use used using vs was we what when where which who why will with you your".split(" "));
  const FIELDS = { chapter: 2, title: 3, heading: 4, text: 1, code: 0.4 };
  const STEM = "~"; // before a stem: `~write` is what `writing` and `write` have in common
  const SECTIONS_PER_PAGE = 3;
  const PAGES_SHOWN = 10;

  const normal = (text) => text.normalize("NFKC");

  /** The word without an English plural ending. */
  const singular = (word) => {
    if (word.length < 4 || !/^[a-z]+s$/.test(word) || /(ss|us|is)$/.test(word)) return word;
    if (word.endsWith("ies")) return word.slice(0, -3) + "y";
    if (/(s|x|z|ch|sh)es$/.test(word)) return word.slice(0, -2);
    return word.slice(0, -1);
  };

  /** A Latin run as the whole and, where it has any, its parts. */
  const nameParts = (run) => {
    const parts = run.split(JOINTS).flatMap((part) => part.split(HUMPS)).map((part) => part.toLowerCase());
    return { whole: run.toLowerCase(), parts: parts.filter((part) => part && part !== run.toLowerCase()) };
  };

  /** The tokens of a text, as the index holds them. */
  const tokenize = (text) => {
    const tokens = [];
    for (const [run] of normal(text).matchAll(RUN)) {
      if (HAN.test(run)) {
        const characters = [...run];
        for (let i = 0; i < characters.length; i++) {
          tokens.push(characters[i]);
          if (i + 1 < characters.length) tokens.push(characters[i] + characters[i + 1]);
        }
      } else {
        const { whole, parts } = nameParts(run);
        for (const word of [whole, ...parts]) {
          tokens.push(word);
          const one = singular(word);
          if (one !== word) tokens.push(one);
          if (ENGLISH.test(word)) tokens.push(STEM + stemmer(word));
        }
      }
    }
    return tokens;
  };

  /** The units of a query: each asks for one thing, by any of its `words`. */
  const units = (query) => {
    const found = new Map();
    const add = (word, asked = 1, parts = []) => {
      const weight = FILLER.test(word) || SMALL.has(word) ? 0.15 : asked;
      const known = found.get(word);
      if (known) known.weight = Math.max(known.weight, weight);
      else found.set(word, { words: [...new Set([word, singular(word)])], weight, parts });
    };
    for (const [run] of normal(query).matchAll(RUN)) {
      if (HAN.test(run)) {
        const characters = [...run];
        if (characters.length === 1) add(run);
        for (let i = 0; i + 1 < characters.length; i++) add(characters[i] + characters[i + 1]);
      } else {
        const { whole, parts } = nameParts(run);
        add(whole, parts.length ? 1.5 : 1, parts.length > 1 ? parts : []);
        for (const part of parts) add(part, parts.length > 1 ? 0.6 : 1);
      }
    }
    return [...found.values()].slice(0, 60);
  };

  const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

  class Engine {
    constructor(index) {
      this.documents = index.documents;
      this.synonyms = index.synonyms.map(({ typed, find }) => ({
        typed: typed.map((word) => {
          const text = normal(word).toLowerCase();
          return HAN.test(text) ? new RegExp(escaped(text)) : new RegExp(`(?<![a-z0-9_.])${escaped(text)}s?(?![a-z0-9_.])`);
        }),
        names: typed,
        find,
      }));
      this.index = new MiniSearch({ fields: Object.keys(FIELDS), tokenize, processTerm: (term) => term });
      this.index.addAll(this.documents);
      this.plain = this.documents.map((d) =>
        Object.fromEntries(Object.keys(FIELDS).map((f) => [f, normal(d[f]).toLowerCase().replace(/\s+/g, " ")])),
      );
    }

    /** What one word matches: document id -> { score, terms }. Typing errors count only where nothing else matches. */
    lookup(word) {
      const options = { boost: FIELDS, tokenize: (text) => [text], processTerm: (term) => term };
      if (word.startsWith(STEM)) {
        const results = this.index.search(word, options);
        return new Map(results.map((r) => [r.id, { score: r.score, terms: r.terms.map((term) => term.slice(STEM.length)) }]));
      }
      const latin = !HAN.test(word);
      const prefix = latin ? word.length >= 3 : word.length === 1;
      let results = this.index.search(word, { ...options, prefix });
      if (!results.length && latin && word.length >= 5) results = this.index.search(word, { ...options, fuzzy: 0.2 });
      return new Map(results.map((r) => [r.id, { score: r.score, terms: r.terms }]));
    }

    /** What all of the words together match. */
    all(words) {
      const maps = words.map((word) => this.any([word, singular(word)]));
      const together = new Map();
      for (const id of maps[0]?.keys() ?? []) {
        const hits = maps.map((map) => map.get(id));
        if (!hits.every(Boolean)) continue;
        together.set(id, { score: hits.reduce((sum, hit) => sum + hit.score, 0), terms: hits.flatMap((hit) => hit.terms) });
      }
      return together;
    }

    /** What a phrase matches, by all of its words and parts. */
    phrase(text) {
      return this.all(units(text).map((unit) => unit.words[0]));
    }

    /** What a unit matches: its words, other forms of them, and for a compound such as `warm-up` its parts. */
    unit({ words, parts }) {
      const matched = this.any(words);
      const looser = parts.length ? [this.all(parts)] : [];
      if (ENGLISH.test(words[0])) looser.push(this.lookup(STEM + stemmer(words[0])));
      for (const hits of looser) {
        for (const [id, hit] of hits) {
          if (!matched.has(id)) matched.set(id, { score: 0.6 * hit.score, terms: hit.terms });
        }
      }
      return matched;
    }

    any(words) {
      const merged = new Map();
      for (const word of words) {
        for (const [id, hit] of this.lookup(word)) {
          const known = merged.get(id);
          if (!known || known.score < hit.score) merged.set(id, { score: hit.score, terms: [...(known?.terms ?? []), ...hit.terms] });
          else known.terms.push(...hit.terms);
        }
      }
      return merged;
    }

    /** Pages, best first: `{ page, title, score, sections: [{ document, terms, score }] }`. */
    search(query) {
      const asked = units(query);
      if (!asked.length) return [];
      const line = normal(query).toLowerCase().replace(/\s+/g, " ").trim();

      const hits = asked.map((unit) => this.unit(unit));
      // A synonym answers for all units of the words that were typed.
      for (const { typed, names, find } of this.synonyms) {
        const which = typed.flatMap((pattern, i) => (pattern.test(line) ? [i] : []));
        if (!which.length) continue;
        const longest = which.reduce((a, b) => (names[a].length >= names[b].length ? a : b));
        const stood = new Set(units(names[longest]).flatMap((unit) => unit.words));
        const places = asked.flatMap((unit, i) => (unit.words.some((word) => stood.has(word)) ? [i] : []));
        if (!places.length) continue;
        for (const other of find) {
          if (normal(other).toLowerCase() === normal(names[longest]).toLowerCase()) continue;
          for (const [id, hit] of this.phrase(other)) {
            const share = (0.8 * hit.score) / places.length;
            for (const place of places) {
              const known = hits[place].get(id);
              if (!known || known.score < share) hits[place].set(id, { score: share, terms: [...(known?.terms ?? []), ...hit.terms] });
            }
          }
        }
      }

      const rare = (map) => Math.log(1 + (this.documents.length + 1) / (map.size + 0.5));
      const weights = hits.map((map, i) => rare(map) * asked[i].weight);
      const total = weights.reduce((a, b) => a + b, 0);

      const sections = new Map();
      hits.forEach((map, i) => {
        for (const [id, hit] of map) {
          const section = sections.get(id) ?? { id, raw: 0, covered: 0, units: new Set(), terms: new Set() };
          section.raw += hit.score * asked[i].weight;
          section.covered += weights[i];
          section.units.add(i);
          for (const term of hit.terms) section.terms.add(term);
          sections.set(id, section);
        }
      });

      const pages = new Map();
      for (const section of sections.values()) {
        const document = this.documents[section.id];
        const plain = this.plain[section.id];
        let bonus = 1;
        if (line.length > 1) {
          if (plain.heading.includes(line)) bonus += plain.heading === line ? 1.6 : 0.8;
          if (plain.title.includes(line)) bonus += 0.5;
          if (plain.text.includes(line)) bonus += 0.4;
          else if (plain.code.includes(line)) bonus += 0.3;
        }
        const score = section.raw * (section.covered / total) ** 1.5 * bonus;
        const page = pages.get(document.page) ?? { page: document.page, title: document.title, sections: [], units: new Set() };
        page.sections.push({ document, score, terms: [...section.terms] });
        for (const unit of section.units) page.units.add(unit);
        pages.set(document.page, page);
      }
      for (const page of pages.values()) {
        page.sections.sort((a, b) => b.score - a.score || a.document.id - b.document.id);
        page.covered = [...page.units].reduce((sum, unit) => sum + weights[unit], 0) / total;
        const [first, second, third] = page.sections.map((section) => section.score);
        page.score = (first + 0.2 * (second ?? 0) + 0.1 * (third ?? 0)) * (0.4 + 0.6 * page.covered);
        if (page.page === "glossary/") page.score *= asked.length > 1 ? 0.5 : 0.8; // names everything, teaches nothing
      }
      const ordered = [...pages.values()].sort((a, b) => b.score - a.score || (a.page < b.page ? -1 : 1));
      const most = Math.max(0, ...ordered.map((page) => page.covered));
      return ordered.filter((page) => page.covered >= 0.3 * most); // what answers a small part of the question only is noise
    }
  }

  /** Where the terms stand in a text: sorted intervals that don't overlap. A word matches at its beginning only. */
  const intervals = (text, terms) => {
    const lower = text.toLowerCase();
    const found = [];
    for (const term of terms) {
      if (!term || (!HAN.test(term) && term.length < 2 && terms.length > 1)) continue;
      for (let at = lower.indexOf(term); at >= 0; at = lower.indexOf(term, at + 1)) {
        const inside = !HAN.test(term) && /[a-z0-9]/.test(lower[at - 1] ?? " ") && !/[A-Z]/.test(text[at]);
        if (!inside) found.push([at, at + term.length]);
      }
    }
    found.sort((a, b) => a[0] - b[0] || b[1] - a[1]);
    const merged = [];
    for (const [from, to] of found) {
      const last = merged[merged.length - 1];
      if (last && from <= last[1]) last[1] = Math.max(last[1], to);
      else merged.push([from, to]);
    }
    return merged;
  };

  /** The stretch of a text where most of the terms stand together. */
  const excerpt = (text, terms, length) => {
    const marks = intervals(text, terms);
    if (text.length <= length) return { text, cut: ["", ""] };
    let start = 0;
    let best = -1;
    for (const [from] of marks) {
      const inside = marks.filter(([a, b]) => a >= from && b <= from + length * 0.8);
      const worth = new Set(inside.map(([a, b]) => text.slice(a, b).toLowerCase())).size * 10 + inside.length;
      if (worth > best) [best, start] = [worth, from];
    }
    start = Math.max(0, start - 30);
    const lead = text.slice(Math.max(0, start - 20), start + 30);
    const stop = Math.max(...["。", "！", "？", ". "].map((mark) => lead.lastIndexOf(mark) + (lead.includes(mark) ? mark.length : 0)));
    if (start && stop > 0) start = Math.max(0, start - 20) + stop;
    else if (start) start += Math.max(0, text.slice(start, start + 15).indexOf(" ") + 1); // not in the middle of a word
    const end = Math.min(text.length, start + length);
    return { text: text.slice(start, end).trim(), cut: [start ? "…" : "", end < text.length ? "…" : ""] };
  };

  const marked = (text, terms) => {
    const out = document.createDocumentFragment();
    let at = 0;
    for (const [from, to] of intervals(text, terms)) {
      out.append(text.slice(at, from));
      const mark = document.createElement("mark");
      mark.textContent = text.slice(from, to);
      out.append(mark);
      at = to;
    }
    out.append(text.slice(at));
    return out;
  };

  const make = (tag, className, ...children) => {
    const element = document.createElement(tag);
    element.className = className;
    element.append(...children);
    return element;
  };

  /** Fill the dialog: load the index, then answer what is typed. */
  const attach = async (dialog) => {
    const input = dialog.querySelector("input");
    const list = dialog.querySelector('[role="listbox"]');
    const status = dialog.querySelector('[role="status"]');
    const index = new URL(dialog.dataset.index, document.baseURI);
    const root = new URL("..", index);

    status.textContent = dialog.dataset.loading;
    const response = await fetch(index);
    if (!response.ok) throw new Error(`${response.status} for ${index}`);
    const engine = new Engine(await response.json());
    status.textContent = "";

    let options = [];
    let active = -1;
    const activate = (next, scroll = true) => {
      options[active]?.setAttribute("aria-selected", "false");
      active = next;
      const option = options[active];
      if (!option) return input.removeAttribute("aria-activedescendant");
      option.setAttribute("aria-selected", "true");
      input.setAttribute("aria-activedescendant", option.id);
      if (scroll) option.scrollIntoView({ block: "nearest" });
    };

    const section = ({ document: found, terms }) => {
      const words = terms.sort((a, b) => b.length - a.length);
      const option = make("a", "course-search__hit", make("span", "course-search__heading", marked(found.heading || dialog.dataset.opening, words)));
      option.href = new URL(found.url, root);
      option.id = `course-search-${found.id}`;
      option.tabIndex = -1;
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", "false");
      const inText = intervals(found.text, words).length > 0 || !intervals(found.code, words).length;
      const length = HAN.test(found.text.slice(0, 40).replace(/[^\p{Script=Han}]/gu, "")) ? 90 : 150;
      const { text, cut } = excerpt(inText ? found.text : found.code, words, length);
      if (text) option.append(make(inText ? "span" : "code", "course-search__excerpt", cut[0], marked(text, words), cut[1]));
      return option;
    };

    const show = () => {
      const query = input.value.trim();
      const pages = query ? engine.search(query) : [];
      list.replaceChildren(
        ...pages.slice(0, PAGES_SHOWN).map((page, i) => {
          const name = make("div", "course-search__page", page.title);
          name.id = `course-search-page-${i}`;
          const group = make("div", "course-search__group", name, ...page.sections.slice(0, SECTIONS_PER_PAGE).map(section));
          group.setAttribute("role", "group");
          group.setAttribute("aria-labelledby", name.id);
          return group;
        }),
      );
      list.scrollTop = 0;
      options = [...list.querySelectorAll('[role="option"]')];
      input.setAttribute("aria-expanded", String(options.length > 0));
      activate(options.length ? 0 : -1, false);
      const { none, found, foundOne } = dialog.dataset;
      status.textContent = !query ? "" : !pages.length ? none : pages.length === 1 ? foundOne : found.replace("#", pages.length);
    };

    input.addEventListener("input", (event) => event.isComposing || show());
    input.addEventListener("compositionend", show);
    input.addEventListener("keydown", (event) => {
      if (event.isComposing || event.keyCode === 229) return; // Enter that ends an input method's word
      const last = options.length - 1;
      if (event.key === "ArrowDown") activate(active < last ? active + 1 : 0);
      else if (event.key === "ArrowUp") activate(active > 0 ? active - 1 : last);
      else if (event.key === "Enter" && options[active]) options[active].click();
      else if (event.key !== "Enter") return;
      event.preventDefault();
    });
    list.addEventListener("pointermove", (event) => {
      const option = event.target.closest('[role="option"]');
      if (option && options[active] !== option) activate(options.indexOf(option), false);
    });
    list.addEventListener("click", (event) => {
      if (event.target.closest("a") && !event.ctrlKey && !event.metaKey && !event.shiftKey) dialog.close();
    });
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    if (input.value) show();
  };

  window.courseSearch = { attach, Engine, tokenize };
})();
