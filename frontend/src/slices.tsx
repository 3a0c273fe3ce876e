/** Slices of the samples: a table with the worst first, and a small reliability diagram of each. */
import { useMemo, useState } from "preact/hooks";
import { equalWidth, runningSums } from "./bins";
import type { Slice } from "./data";
import { number, share, shortened, whole } from "./plot";
import { type Column, Interval, pText, signed, SortTable } from "./tables";

interface Row extends Slice { id: string; rank: number }
const SIDE = 120; // of a panel, in its own units
const FEW = 10; // samples of a bin below which it is pale

export function SliceCharts({ slices, bins, onPick }: { slices: Slice[]; bins: number; onPick?: (column: string, value: string) => void }) {
  const columns = [...new Set(slices.map((one) => one.column))], [column, choose] = useState(columns[0]), now = columns.includes(column) ? column : columns[0];
  const rows = useMemo(() => slices.filter((one) => one.column === now).map((one, rank): Row => ({ ...one, id: one.value, rank: rank + 1 })), [slices, now]);
  const drawn = rows.filter((row) => row.cells), names = useMemo(() => shortened(rows.map((row) => row.value), 40), [rows]), top = Math.max(...rows.filter((row) => row.p !== null).map((row) => row.ece.high ?? row.ece.value), 0.01);
  const tested = slices.filter((one) => one.p !== null).length;
  const [claimed, occurred] = wordsOf(slices[0]), subject = slices[0].subject && `Of two classes, these are numbers of the ${slices[0].subject}. `;
  const table: Column<Row>[] = [
    { title: "rank", worth: (row) => row.rank, cell: (row) => row.rank },
    { title: now, text: true, worth: (row) => row.value, cell: (row) => (onPick ? <button type="button" class="plain" title={row.value} onClick={() => onPick(row.column, row.value)}>{names.get(row.value)}</button> : <span title={row.value}>{names.get(row.value)}</span>) },
    { title: "ECE", worth: (row) => row.ece.value, cell: (row) => (row.miscalibrated ? <b>{number(row.ece.value)}</b> : number(row.ece.value)) },
    { title: "to the rest", worth: (row) => row.to_rest.value, side: (row) => (row.side === "alike" ? "" : row.side), cell: (row) => (row.to_rest.value === null ? "–" : <>{signed(100 * row.to_rest.value, 1)}<i>{{ better: "▲", worse: "▼", alike: "" }[row.side]}</i></>) },
    { title: "samples", worth: (row) => row.n, cell: (row) => whole(row.n) },
    ...(rows[0]?.weight == null ? [] : [{ title: "weight", worth: (row: Row) => row.weight, cell: (row: Row) => share(row.weight!) }]),
    { title: claimed, worth: (row) => row.confidence, cell: (row) => share(row.confidence) },
    { title: occurred, worth: (row) => row.accuracy, cell: (row) => share(row.accuracy) },
    { title: "95 % interval", worth: (row) => row.ece.low, cell: (row) => (row.ece.low === null ? "–" : `${number(row.ece.low)} … ${number(row.ece.high)}`) },
    { title: "ECE, with its interval; noise floor dashed", text: true, wide: true, worth: (row) => row.ece.value, cell: (row) => <Interval dot={{ ...row.ece, side: row.miscalibrated ? "worse" : "alike" }} range={[0, top]} zero={row.floor ?? undefined} /> },
    { title: "p", worth: (row) => row.p, cell: (row) => pText(row.p) },
  ];
  return (
    <div class="slices">
      <SortTable key={now} name="slice-table" title={columns.length > 1 ? "Slices" : `Slices by ${now}`} rows={rows} columns={table} id="id" sought={(row) => row.value} hint="value of a slice" first={0} falls={false} nothing="No slice has such a value."
        above={columns.length > 1 && <fieldset class="views"><legend>Slices by</legend>{columns.map((one) => <label><input type="radio" name="slices-by" checked={one === now} onChange={() => choose(one)} /><span>{one}</span></label>)}</fieldset>}
        legend={`${subject}The worst first, by the error above its noise floor. p: how often calibrated predictions would show such an error, corrected for ${whole(tested)} ${tested === 1 ? "slice" : "slices"} (Holm); bold: beyond noise. To the rest: ${claimed} − ${occurred} in percentage points, minus that of all other samples; ▼ further from 0 than theirs, ▲ closer, beyond noise. Slices of fewer than ten samples are not tested.${rows.some((row) => row.n >= 10 && row.ece.low === null) ? " One of a few clusters has no interval, and a weak test." : ""}${onPick ? " Click a slice for its samples." : ""}`} />
      <div class="panels">{drawn.map((row) => <Panel key={row.value} row={row} name={names.get(row.value)!} bins={bins} onPick={onPick} />)}</div>
      <p class="legend">{drawn.length < rows.length && `The ${drawn.length} worst of ${whole(rows.length)}. `}Across: {claimed}; up: {occurred}, both from 0 to 100 %. Dashed outline: less often {slices[0].of_class ? "observed than predicted" : "right than claimed"}; blue: more often. Pale: under 10 samples. On the dashed line: calibrated.</p>
    </div>
  );
}

/** What is compared: confidence and accuracy, or a probability of a class and its share. */
const wordsOf = (one: Slice) => (one.of_class ? ["predicted", "observed"] : ["confidence", "accuracy"]);

/** A reliability diagram as small as can be read. */
function Panel({ row, name, bins, onPick }: { row: Row; name: string; bins: number; onPick?: (column: string, value: string) => void }) {
  const made = useMemo(() => equalWidth(runningSums(row.cells!), bins), [row, bins]), at = (value: number) => value * SIDE, up = (value: number) => SIDE - value * SIDE;
  const [claimed, occurred] = wordsOf(row), counted = `${whole(row.n)} ${row.n === 1 ? "sample" : "samples"}`, words = `${row.value}: ${counted}, ${claimed} ${share(row.confidence)}, ${occurred} ${share(row.accuracy)}, ECE ${number(row.ece.value)}`;
  const drawing = (
    <svg viewBox={`-1 -1 ${SIDE + 2} ${SIDE + 2}`} {...(onPick ? { "aria-hidden": "true" } : { role: "img", "aria-label": `Reliability diagram of ${words}.` })}>
      <rect class="frame-line" x="0" y="0" width={SIDE} height={SIDE} />
      {made.map((bin) => {
        const left = at(bin.low) + 0.4, width = at(bin.high) - at(bin.low) - 0.8, pale = bin.count < FEW ? " pale" : "", over = bin.accuracy < bin.confidence;
        return <g class={pale}><rect class="bar" x={left} width={width} y={up(bin.accuracy)} height={at(bin.accuracy)} />
          <rect class={over ? "gap-over" : "gap-under"} x={left} width={width} y={up(Math.max(bin.accuracy, bin.confidence))} height={at(Math.abs(bin.accuracy - bin.confidence))} />
          <line class="level" x1={left} x2={left + width} y1={up(bin.accuracy)} y2={up(bin.accuracy)} /></g>;
      })}
      <line class="diagonal" x1="0" y1={SIDE} x2={SIDE} y2="0" />
    </svg>);
  const caption = <><b title={row.value}>{name}</b><small>{counted} · ECE {number(row.ece.value)}</small></>;
  return <figure>{onPick ? <button type="button" class="panel" onClick={() => onPick(row.column, row.value)}>{drawing}<span>{caption}</span></button> : <>{drawing}<figcaption>{caption}</figcaption></>}</figure>;
}
