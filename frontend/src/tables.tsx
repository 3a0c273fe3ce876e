/** Tables that a reader sorts and searches: classes, and methods side by side. */
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { wilson } from "./bins";
import type { Classes, Compared, Dot, Method } from "./data";
import { number, share, shortened, whole } from "./plot";

const SHOWN = 10;

export interface Column<Row> {
  title: string; worth: (row: Row) => string | number | null; // to sort by
  cell: (row: Row) => ComponentChildren; side?: (row: Row) => string; text?: boolean; wide?: boolean;
}

/** A table that a reader searches and sorts; the first rows of many are shown. */
export function SortTable<Row>(props: { name: string; title: string; rows: Row[]; columns: Column<Row>[]; id: keyof Row & string; sought: (row: Row) => string; hint: string; first: number; falls?: boolean; legend: string; nothing: string; above?: ComponentChildren }) {
  const { rows, columns } = props, [sought, seek] = useState(""), [all, showAll] = useState(false), [order, setOrder] = useState({ at: props.first, falls: props.falls ?? true });
  const sorted = useMemo(() => {
    const worth = (row: Row) => { const value = columns[order.at].worth(row); return value === null || Number.isNaN(value) ? -Infinity : value; };
    const compare = (a: Row, b: Row) => { const [x, y] = [worth(a), worth(b)]; return typeof x === "string" ? x.localeCompare(String(y), "en", { numeric: true }) : x - (y as number) || 0; };
    return rows.filter((row) => props.sought(row).toLowerCase().includes(sought.toLowerCase())).sort((a, b) => compare(a, b) * (order.falls ? -1 : 1));
  }, [rows, sought, order]);
  const shown = all ? sorted : sorted.slice(0, SHOWN);
  return (
    <section class={props.name}>
      <h2>{props.title}</h2>
      {props.above}
      {rows.length > 1 && <label class="search">Search <input type="search" value={sought} placeholder={props.hint} onInput={(event) => seek(event.currentTarget.value)} /></label>}
      <div class="scroll" tabIndex={0} role="region" aria-label={props.title}>
        <table>
          <thead><tr>{columns.map(({ title, text, wide }, at) => (
            <th scope="col" class={`${text ? "text" : ""} ${wide ? "wide" : ""}`} aria-sort={order.at !== at ? "none" : order.falls ? "descending" : "ascending"}>
              <button type="button" onClick={() => setOrder({ at, falls: order.at === at ? !order.falls : !text })}>{title}<span aria-hidden="true">{order.at !== at ? "" : order.falls ? " ↓" : " ↑"}</span></button></th>))}</tr></thead>
          <tbody>{shown.map((row) => <tr key={String(row[props.id])}>{columns.map(({ cell, side, text, wide }) => <td class={`${text ? "text" : ""} ${wide ? "wide" : ""} ${side?.(row) ?? ""}`}>{cell(row)}</td>)}</tr>)}</tbody>
        </table>
      </div>
      {sorted.length > SHOWN && <button type="button" onClick={() => showAll(!all)}>{all ? "Show fewer" : `Show all ${whole(sorted.length)}`}</button>}
      <p class="legend">{sorted.length ? props.legend : props.nothing}</p>
    </section>
  );
}

interface ClassRow { name: string; samples: number; weight: number; predicted: number; confidence: number; accuracy: number; gap: number; mark: string; band: [number, number] }

function rowsOf(classes: Classes): ClassRow[] {
  return classes.name.map((name, i) => {
    const count = (classes.effective ?? classes.predicted)[i], confidence = classes.confidence[i] / count, accuracy = classes.correct[i] / count;
    const band = count ? wilson(classes.correct[i], count) : ([0, 1] as [number, number]), [low, high] = band;
    return { name, samples: classes.samples[i], weight: classes.weight?.[i] ?? NaN, predicted: classes.predicted[i], confidence, accuracy, gap: confidence - accuracy, band, mark: confidence > high ? "claims-more" : confidence < low ? "claims-less" : "" };
  });
}

function ClassBar({ row: { confidence, accuracy, band, mark } }: { row: ClassRow }) {
  const at = (value: number) => 6 + 228 * value;
  return (
    <svg class="interval" viewBox="0 0 240 16" width="240" height="16" aria-hidden="true">
      <line class="track" x1="6" x2="234" y1="8" y2="8" /><line class="range" x1={at(band[0])} x2={at(band[1])} y1="8" y2="8" /><circle cx={at(accuracy)} cy="8" r="4" />
      <path class={mark} d={`M${at(confidence)} 2l5 6-5 6-5-6z`} />
    </svg>
  );
}

/** Classes by how far confidence is from accuracy when they are predicted. */
export function ClassTable({ classes, onPick }: { classes: Classes; onPick?: (name: string) => void }) {
  const rows = useMemo(() => rowsOf(classes), [classes]), names = useMemo(() => shortened(classes.name, 40), [classes]), part = (value: number) => (Number.isNaN(value) ? "–" : share(value));
  const columns: Column<ClassRow>[] = [
    { title: "class", text: true, worth: (row) => row.name, cell: (row) => (onPick ? <button type="button" class="plain" title={row.name} onClick={() => onPick(row.name)}>{names.get(row.name)}</button> : <span title={row.name}>{names.get(row.name)}</span>) },
    { title: "confidence − right", worth: (row) => Math.abs(row.gap), cell: (row) => { const gap = Number.isNaN(row.gap) ? "–" : signed(100 * row.gap, 1); return row.mark ? <b class={row.mark}>{gap}</b> : gap; } },
    { title: "samples", worth: (row) => row.samples, cell: (row) => whole(row.samples) },
    ...(classes.weight ? [{ title: "weight", worth: (row: ClassRow) => row.weight, cell: (row: ClassRow) => share(row.weight) }] : []),
    { title: "predicted", worth: (row) => row.predicted, cell: (row) => whole(row.predicted) },
    { title: "confidence", worth: (row) => row.confidence, cell: (row) => part(row.confidence) },
    { title: "right", worth: (row) => row.accuracy, cell: (row) => part(row.accuracy) },
    { title: "right, with its interval; confidence ◆", text: true, wide: true, worth: (row) => row.accuracy, cell: (row) => row.predicted > 0 && <ClassBar row={row} /> },
  ];
  return <SortTable name="classes" title="Classes" rows={rows} columns={columns} id="name" sought={(row) => row.name} hint="name of a class" first={1} nothing="No class has such a name."
    legend={`${classes.weight ? "Weight: the share of the samples of a class in all weights. " : ""}When a class is predicted: mean confidence, how often that is right, and the difference in percentage points. Above 0 it is overconfident, below 0 underconfident; bold: confidence lies outside the 95 % interval of the share that is right.`} />;
}

/** A dot with its interval on a common scale; an arrow where it lies beyond the edge. */
export function Interval({ dot, range: [low, high], zero }: { dot: Dot; range: [number, number]; zero?: number }) {
  const at = (value: number) => 6 + Math.max(0, Math.min(1, (value - low) / (high - low || 1))) * 206, beyond = dot.value > high;
  return (
    <svg class={`interval ${dot.side}`} viewBox="0 0 220 16" width="220" height="16" aria-hidden="true">
      {zero !== undefined && <line class="zero" x1={at(zero)} x2={at(zero)} y1="0" y2="16" />}
      {dot.low !== null && dot.high !== null && <line class="range" x1={at(dot.low)} x2={at(dot.high)} y1="8" y2="8" />}
      {beyond ? <path d="M210 3l8 5-8 5z" /> : dot.side === "worse" ? <path d={`M${at(dot.value) - 5} 4h10l-5 9z`} /> : dot.side === "better" ? <path d={`M${at(dot.value) - 5} 12h10l-5-9z`} /> : <circle cx={at(dot.value)} cy="8" r="4" />}
    </svg>
  );
}

/** The range of the better two thirds, so that one bad method does not hide their differences. */
function rangeOf(dots: Dot[]): [number, number] {
  const values = dots.map((dot) => dot.value).sort((a, b) => a - b), good = values[Math.floor((2 * values.length) / 3)] ?? 0;
  const kept = dots.filter((dot) => dot.value <= good + 2 * Math.abs(good - values[0]));
  return [Math.min(...kept.map((dot) => dot.low ?? dot.value)), Math.max(...kept.map((dot) => dot.high ?? dot.value))];
}

export const signed = (value: number, digits: number) => {
  const size = Math.abs(value).toFixed(digits);
  return `${Number(size) === 0 ? "" : value > 0 ? "+" : "−"}${size}`; // what rounds to 0 has no sign
};

export const pText = (p: number | null): string => (p === null ? "–" : p < 0.002 ? "< .002" : p.toFixed(3));

/** Two models on the same samples, metric by metric. */
export function DifferenceTable({ compared: { baseline, words, main, metrics } }: { compared: Compared }) {
  const [all, showAll] = useState(false), title = `Compared with ${baseline}`;
  return (
    <section class="differences">
      <h2>{title}</h2>
      <p class="words">{words}</p>
      <div class="scroll" tabIndex={0} role="region" aria-label={title}>
        <table>
          <thead><tr><th class="text" scope="col">metric</th><th scope="col">baseline</th><th scope="col">this</th><th scope="col">this − baseline</th><th class="wide" aria-hidden="true" /><th scope="col">95 % interval</th><th scope="col">p</th></tr></thead>
          <tbody>{(all ? metrics : metrics.slice(0, main)).map(({ name, title: of, lower_is_better, baseline: before, candidate, ...change }) => {
            const most = Math.max(...[change.value, change.low, change.high].map((value) => Math.abs(value ?? 0)));
            return (
              <tr key={name}><td class="text">{of} <code>{name}</code>{lower_is_better === null ? "" : lower_is_better ? " ↓" : " ↑"}</td><td>{number(before)}</td><td>{number(candidate)}</td>
                <td class={change.side}>{signed(change.value, 4)}<i>{{ better: "▲", worse: "▼", alike: "" }[change.side]}</i></td>
                <td class="text wide"><Interval dot={change} range={[-most, most]} zero={0} /></td>
                <td>{change.low === null || change.high === null ? "–" : `${signed(change.low, 4)} … ${signed(change.high, 4)}`}</td><td>{pText(change.p)}</td></tr>);
          })}</tbody>
        </table>
      </div>
      {metrics.length > main && <button type="button" onClick={() => showAll(!all)}>{all ? "Show fewer" : `Show all ${whole(metrics.length)}`}</button>}
      <p class="legend">Paired: resamples have the same samples of both. ▲ better, ▼ worse than the baseline (vertical line), beyond noise and by enough to matter; ↓ lower is better, ↑ higher. p is two-sided, and not corrected for the number of metrics.</p>
    </section>
  );
}

/** Methods side by side, lowest log-loss first, with a warning where the accuracy falls. */
export function MethodTable({ methods, baseline, of }: { methods: Method[]; baseline: string; of: string }) {
  const changes = rangeOf(methods.map((method) => method.nll_change)), errors = rangeOf(methods.map((method) => method.ece));
  return (
    <section class="methods">
      <h2>Methods side by side</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Methods side by side">
        <table>
          <thead><tr><th class="text" scope="col">method</th><th class="wide" aria-hidden="true" /><th scope="col">log-loss − {baseline}</th><th class="wide" aria-hidden="true" /><th scope="col">ECE{of}</th><th class="text" scope="col">accuracy, points</th></tr></thead>
          <tbody>{methods.map(({ name, title, nll_change, ece, accuracy_change: change, recommended }) => (
            <tr key={name} class={recommended ? "chosen" : ""}>
              <td class="text" title={title}><code>{name}</code>{recommended && <span class="badge">recommended</span>}</td>
              <td class="text wide"><Interval dot={nll_change} range={changes} zero={0} /></td>
              <td class={nll_change.side}>{name === baseline ? "–" : signed(nll_change.value, 4)}<i>{{ better: "▲", worse: "▼", alike: "" }[nll_change.side]}</i></td>
              <td class="text wide"><Interval dot={ece} range={errors} /></td><td class={ece.side}>{number(ece.value)}<i>{{ better: "▲", worse: "▼", alike: "" }[ece.side]}</i></td>
              <td class={change?.side === "worse" ? "text warn" : "text"}>{!change || change.value === 0 ? "0" : `${signed(100 * change.value, 2)}${change.side === "worse" ? " ⚠ falls beyond noise" : ""}`}</td>
            </tr>))}</tbody>
        </table>
      </div>
      <p class="legend">Lines: 95 % intervals. ▲ better, ▼ worse than {baseline} (vertical line), beyond noise and by enough to matter. An arrow at the edge: far off.</p>
    </section>
  );
}
