"use strict";
// The what-if explorer: POSCOD.at(alpha, tpr_min, loss) and POSCOD.evaluate on the embedded rows, nothing else.
// SPDX-License-Identifier: BSD-3-Clause
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("explorer-data").textContent);
  const MISSING = "–", TANGENT_AT = 690, MAIN_SHARE = 2 / 3, SHOWN = 3000;
  const GROUPS = ["id", "ood", "unlabeled"], REASONS = ["accepted", "ambiguous", "unfamiliar", "both"];
  const SLIDERS = ["alpha", "tpr_min", "scale"];

  const decode = (text) => {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return new Float64Array(bytes.buffer);
  };
  const rows = {};
  for (const [name, group] of Object.entries(data.groups)) {
    rows[name] = { n: group.embedded };
    for (const column of ["risk", "log_ratio", "loss", "weight", "class"]) {
      if (group[column] !== undefined) rows[name][column] = decode(group[column]);
    }
  }

  // s = r + beta g; above an exponent of 690 the exponential is continued by its tangent, as in poscod.decision.
  const score = (group, beta, scale) => {
    const { risk, log_ratio: log, n } = group, s = new Float64Array(n);
    if (beta === 0) {
      for (let i = 0; i < n; i++) s[i] = scale * risk[i];
      return s;
    }
    const alone = beta === Infinity, shift = alone ? 0 : Math.log(beta);
    for (let i = 0; i < n; i++) {
      const exponent = alone ? log[i] : log[i] + shift;
      const term = Math.exp(Math.min(exponent, TANGENT_AT)) * (1 + Math.max(exponent - TANGENT_AT, 0));
      s[i] = alone ? term : scale * risk[i] + term;
    }
    return s;
  };

  // lambda is the order statistic whose rank Python has chosen; with sample weights, the score that reaches a weight.
  const threshold = (s, place, tprMin) => {
    if (data.rank !== null) return data.rank[place] === null ? null : s.slice().sort()[data.rank[place] - 1];
    const weight = rows.calibration.weight, order = Array.from(s.keys()).sort((a, b) => s[a] - s[b]);
    let running = 0, at = -1;
    for (const i of order) {
      running += weight[i];
      if (tprMin === 1 ? weight[i] > 0 : running >= data.floor[place]) { at = i; if (tprMin < 1) break; }
    }
    return s[at];
  };

  // In another class mix a class counts by its share, not by its rows, as in poscod.model's Tally: TPR, mean loss, and the rows their variance stands for.
  const mixed = data.mix === null ? null : (() => {
    const n = new Float64Array(data.mix.share.length);
    for (const k of rows.id.class) n[k]++;
    const all = data.mix.share.reduce((sum, q, k) => sum + (n[k] > 0 ? q : 0), 0);
    const share = data.mix.share.map((q, k) => all > 0 ? (n[k] > 0 ? q / all : 0) : 1 / n.length), unseen = Math.max(0, 1 - all);
    const top = Math.max(1, 1 / share.reduce((sum, q, k) => sum + q * q / Math.max(n[k], 1), 0));
    const covariance = data.mix.covariance === null ? null : decode(data.mix.covariance);
    return (accept) => {
      const K = n.length, accepted = new Float64Array(K), lost = new Float64Array(K);
      for (let i = 0; i < rows.id.n; i++) {
        if (accept[i]) { accepted[rows.id.class[i]]++; lost[rows.id.class[i]] += rows.id.loss[i]; }
      }
      const size = n.map((x) => Math.max(x, 1)), rate = accepted.map((x, k) => x / size[k]);
      let tpr = 0, loss = 0, mass = 0, variance = 0.25 * unseen ** 2;
      for (let k = 0; k < K; k++) {
        tpr += share[k] * rate[k];
        loss += share[k] / size[k] * lost[k];
        mass += share[k] / size[k] * accepted[k];
      }
      const slope = (k) => share[k] > 0 ? rate[k] - tpr : 0;
      for (let k = 0; k < K; k++) {
        const smooth = (accepted[k] + tpr) / (size[k] + 1);
        variance += share[k] ** 2 / size[k] * smooth * (1 - smooth);
        for (let j = 0; covariance !== null && j < K; j++) variance += slope(k) * covariance[k * K + j] * slope(j);
      }
      const inside = Math.min(Math.max(tpr, 0.5 / top), 1 - 0.5 / top);
      return { tpr, selective: loss / mass, rows: Math.min(Math.max(inside * (1 - inside) / Math.max(variance, 1e-300), 1), top) };
    };
  })();

  const risk = (alpha, selective, fpr) =>
    alpha === 0 ? selective : alpha === 1 ? fpr : (1 - alpha) * selective + alpha * fpr;

  // FPR from accepted = (1 - pi) TPR + pi FPR with Fieller's interval, as in poscod.selector.unlabeled_fpr.
  const freeFpr = (t, a, m, n) => {
    const pi = data.prior.estimate, below = pi - data.prior.low, above = data.prior.high - pi;
    if (pi === 0) return NaN;
    const inside = (x, k) => Math.min(Math.max(x, 0.5 / k), 1 - 0.5 / k), tc = inside(t, m), ac = inside(a, n);
    const noise = data.z ** 2 * (ac * (1 - ac) / n + (1 - pi) ** 2 * tc * (1 - tc) / m);
    const gap = Math.abs(t - a), distinct = gap ** 2 - noise, width = distinct >= 0 ? above : below;
    const root = Math.sqrt(Math.max(width ** 2 * gap ** 2 + noise * (pi ** 2 - width ** 2), 0));
    const room = pi ** 2 - below ** 2, near = distinct / (pi * gap + root + 1e-300);
    const inner = room <= 0 && distinct < 0 ? -Infinity : near;
    const outer = room <= 0 ? Infinity : (pi * gap + Math.sqrt(below ** 2 * gap ** 2 + noise * room)) / room;
    const sign = t - a < 0 ? -1 : 1, ends = [t - sign * inner, t - sign * outer];
    const low = Math.min(...ends), high = Math.max(...ends);
    if ((low <= 0 && high >= 1) || high < 0 || low > 1) return NaN;
    return Math.min(1, Math.max(0, t - (t - a) / pi));
  };

  const at = (places) => {
    const [alpha, tprMin, scale] = SLIDERS.map((name) => data[name].positions[places[name]]);
    const beta = alpha === 1 ? Infinity : alpha * tprMin / (1 - alpha);
    const lambda = threshold(score(rows.calibration, beta, scale), places.tpr_min, tprMin);
    const found = { alpha, tpr_min: tprMin, scale, beta, lambda, outcome: {}, accept: {} };
    if (lambda === null) return found;
    const share = {};
    let lost = 0;
    for (const name of GROUPS.filter((group) => rows[group])) {
      const group = rows[name], s = score(group, beta, scale), counts = [0, 0, 0, 0], accept = new Uint8Array(group.n);
      for (let i = 0; i < group.n; i++) {
        const part = beta === Infinity ? 0 : scale * group.risk[i];
        accept[i] = s[i] <= lambda ? 1 : 0;
        counts[accept[i] ? 0 : part >= MAIN_SHARE * s[i] ? 1 : part <= (1 - MAIN_SHARE) * s[i] ? 2 : 3]++;
        if (name === "id" && accept[i]) lost += group.loss[i];
      }
      share[name] = counts[0] / group.n;
      found.outcome[name] = counts;
      found.accept[name] = accept;
    }
    const known = mixed === null ?
      { tpr: share.id, selective: lost / found.outcome.id[0], rows: rows.id.n } : mixed(found.accept.id);
    found.tpr = known.tpr;
    found.selective_risk = scale * known.selective;
    if (rows.ood) {
      found.fpr = share.ood;
      found.risk = risk(alpha, found.selective_risk, found.fpr);
    }
    if (rows.unlabeled) {
      found.accepted = share.unlabeled;
      found.free_fpr = freeFpr(known.tpr, share.unlabeled, known.rows, rows.unlabeled.n);
      found.free_risk = risk(alpha, found.selective_risk, found.free_fpr);
    }
    return found;
  };

  const general = (x) => Number.isFinite(x) ? String(Number(x.toPrecision(4))).replace("-", "−") : x === Infinity ? "∞" : MISSING;
  const fixed = (x, digits) => Math.abs(x) < 1e15 ? x.toFixed(digits).replace("-", "−") : general(x);
  const percent = (x) => Number.isFinite(x) ? `${fixed(x * 100, 1)} %` : MISSING;
  const SHARES = new Set(["tpr", "fpr", "accepted", "free_fpr"]);
  const shown = (key, x) => SHARES.has(key) ? percent(x) : fixed(x, 4);
  const change = (key, from, to) => {
    if (!Number.isFinite(from) || !Number.isFinite(to)) return MISSING;
    const text = SHARES.has(key) ? `${fixed(100 * (to - from), 1)} pts` : fixed(to - from, 4);
    return to > from ? `+${text}` : text.replace(/^−(0\.0+( pts)?)$/, "$1");
  };

  const places = {}, start = {};
  for (const name of SLIDERS) start[name] = data[name].start;
  const first = at(start);

  const write = (cell, key, x) => {
    cell.textContent = shown(key, x);
    cell.dataset.value = String(x);
  };
  const describe = (now) => {
    const parts = [`alpha ${general(now.alpha)}, required TPR ${percent(now.tpr_min)}, mistakes cost ${general(now.scale)} times`];
    if (now.lambda === null) return `${parts[0]}: too few calibration rows for this promise.`;
    parts.push(`${percent(now.tpr)} of known inputs accepted`);
    if (rows.ood) parts.push(`${percent(now.fpr)} of unknown inputs accepted`);
    if (rows.unlabeled) parts.push(`${percent(now.accepted)} of traffic accepted`);
    parts.push(`selective risk ${fixed(now.selective_risk, 4)}`);
    if (rows.ood) parts.push(`SCOD risk ${fixed(now.risk, 4)}`);
    return `${parts.join("; ")}.`;
  };

  let current = first, saying = 0;
  const update = () => {
    for (const name of SLIDERS) places[name] = Number(byId(name).value);
    current = at(places);
    const texts = { alpha: general(current.alpha), tpr_min: percent(current.tpr_min), scale: `× ${general(current.scale)}` };
    for (const name of SLIDERS) {
      byId(`${name}-value`).textContent = texts[name];
      byId(name).setAttribute("aria-valuetext", texts[name]);
    }
    for (const row of document.querySelectorAll("#what-if tbody tr")) {
      const key = row.dataset.row, [was, now, moved] = row.querySelectorAll("td");
      write(was, key, first[key]);
      write(now, key, current[key]);
      moved.textContent = change(key, first[key], current[key]);
    }
    for (const row of document.querySelectorAll("#outcomes tbody tr")) {
      const counts = current.outcome[row.dataset.group];
      row.querySelectorAll("td").forEach((cell, i) => {
        cell.textContent = counts ? counts[i].toLocaleString("en") : MISSING;
        cell.dataset.value = counts ? String(counts[i]) : "";
      });
    }
    const { lambda, beta } = current;
    byId("line").textContent = lambda === null ? "" :
      `Accept where ${beta === Infinity ? "g" : "r + βg"} ≤ λ: β = ${general(beta)}, λ = ${general(lambda)}.`;
    byId("line").dataset.threshold = lambda === null ? "" : String(lambda);
    byId("infeasible").hidden = lambda !== null;
    byId("infeasible").textContent = lambda === null ?
      `${rows.calibration.n.toLocaleString("en")} calibration rows are too few to promise ${percent(current.tpr_min)}: choose less.` : "";
    byId("reset").disabled = SLIDERS.every((name) => places[name] === start[name]);
    draw();
    clearTimeout(saying);
    saying = setTimeout(() => { byId("said").textContent = describe(current); }, 500);
    document.documentElement.dataset.ready = "true";
  };

  // The picture: a thinned sample of rows and the line; numbers never come from it.
  const canvas = byId("live"), BOX = { left: 52, right: 12, top: 12, bottom: 46 };
  const ticks = (low, high) => {
    const raw = (high - low) / 5, size = 10 ** Math.floor(Math.log10(raw));
    const step = size * [1, 2, 2.5, 5, 10].find((m) => size * m >= raw * 0.999), found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(Number((i * step).toPrecision(6)));
    return found;
  };
  const draw = () => {
    const width = canvas.clientWidth || 480, height = Math.round(width * 2 / 3), ratio = window.devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d"), styles = getComputedStyle(document.documentElement);
    const colour = (name) => styles.getPropertyValue(`--${name}`).trim();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const [low, high] = data.window, right = data.right;
    const x = (r) => BOX.left + Math.min(Math.max(r / right, 0), 1) * (width - BOX.left - BOX.right);
    const y = (g) => height - BOX.bottom - Math.min(Math.max((g - low) / (high - low), 0), 1) * (height - BOX.top - BOX.bottom);
    pen.font = `12.5px ${getComputedStyle(document.body).fontFamily}`;
    pen.fillStyle = colour("soft");
    pen.strokeStyle = colour("rule");
    pen.textAlign = "right";
    for (const tick of ticks(low, high)) {
      pen.beginPath(); pen.moveTo(BOX.left, y(tick)); pen.lineTo(width - BOX.right, y(tick)); pen.stroke();
      pen.fillText(general(tick), BOX.left - 7, y(tick) + 4);
    }
    pen.textAlign = "center";
    for (const tick of ticks(0, right)) pen.fillText(general(tick), x(tick), height - BOX.bottom + 18);
    pen.fillText("conditional risk r", (BOX.left + width - BOX.right) / 2, height - 8);
    pen.save(); pen.translate(13, (BOX.top + height - BOX.bottom) / 2); pen.rotate(-Math.PI / 2); pen.fillText("log g", 0, 0); pen.restore();
    // Unlabeled rows are the background; of the others the rarer ones lie on top.
    const depth = (name) => name === "unlabeled" ? Infinity : rows[name].n;
    const named = GROUPS.filter((name) => rows[name]).sort((a, b) => depth(b) > depth(a) ? 1 : -1);
    for (const name of named) {
      const group = rows[name], step = Math.ceil(group.n / SHOWN), accept = current.accept[name];
      pen.fillStyle = pen.strokeStyle = colour(name);
      pen.globalAlpha = name === "unlabeled" ? 0.4 : 0.75;
      pen.lineWidth = 1.2;
      pen.beginPath();
      for (let i = 0; i < group.n; i += step) {
        const px = x(group.risk[i]), py = y(group.log_ratio[i]);
        if (accept && accept[i]) { pen.moveTo(px + 2.2, py); pen.arc(px, py, 2.2, 0, 7); }
      }
      pen.fill();
      pen.beginPath();
      for (let i = 0; i < group.n; i += step) {
        const px = x(group.risk[i]), py = y(group.log_ratio[i]);
        if (accept && !accept[i]) { pen.moveTo(px - 2, py - 2); pen.lineTo(px + 2, py + 2); pen.moveTo(px - 2, py + 2); pen.lineTo(px + 2, py - 2); }
      }
      pen.stroke();
    }
    pen.globalAlpha = 1;
    const boundary = (setting, name, thick, dashes) => {
      if (setting.lambda === null) return;
      pen.strokeStyle = colour(name);
      pen.lineWidth = thick;
      pen.setLineDash(dashes);
      pen.beginPath();
      let begun = false;
      const point = (r, g) => { if (begun) pen.lineTo(x(r), y(g)); else pen.moveTo(x(r), y(g)); begun = true; };
      if (setting.beta === Infinity) {
        const level = Math.log(setting.lambda);
        if (level >= low && level <= high) { point(0, level); point(right, level); }
      } else {
        // Points at even steps of g where the line is steep, and of r where it is flat.
        const { beta, scale, lambda } = setting, points = [];
        for (let i = 0; i <= 200; i++) {
          const g = low + (high - low) * i / 200, r = right * i / 200, rest = lambda - scale * r;
          points.push([(lambda - (beta === 0 ? 0 : Math.exp(g + Math.log(beta)))) / scale, g]);
          if (beta > 0 && rest > 0) points.push([r, Math.log(rest) - Math.log(beta)]);
        }
        points.sort((a, b) => a[1] - b[1] || b[0] - a[0]);
        for (const [r, g] of points) if (r >= 0 && r <= right && g >= low && g <= high) point(r, g);
      }
      pen.stroke();
      pen.setLineDash([]);
    };
    boundary(first, "soft", 1.2, [4, 4]);
    boundary(current, "poscod", 2.6, []);
  };

  let waiting = false;
  const later = (work) => () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; work(); });
  };
  for (const name of SLIDERS) {
    byId(name).value = String(start[name]);
    byId(name).addEventListener("input", later(update));
  }
  byId("reset").addEventListener("click", () => {
    for (const name of SLIDERS) byId(name).value = String(start[name]);
    update();
  });
  window.addEventListener("resize", later(draw));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", later(draw));
  update();
})();
