/** Trained networks side by side: what a map removes, what it leaves, and how that varies. */
import { useMemo, useState } from "preact/hooks";
import { Densities, Reading } from "./charts";
import type { Candidate, CurveGroups, Diagnosis, Series, Side, Spread, UnderMap } from "./data";
import { Axes, band, Figure, heightOf, linear, logarithmic, MARGIN, named, number, path, percentTick, type Point, share, short, walked } from "./plot";
import { type Column, signed, SortTable } from "./tables";

type Plane = "ece" | "brier";
const PLANES: [Plane, string][] = [["ece", "ECE and AUROC"], ["brier", "parts of the Brier score"]];
const KEYS: Record<Plane, ["ece" | "reliability", "auroc" | "refinement", string, string]> = {
  ece: ["ece", "auroc", "ECE, % (left is better)", "AUROC, % (up is better)"],
  brier: ["reliability", "refinement", "Reliability, % (left is better)", "Refinement, % (down is better)"],
};
const MOST_ROWS = 12; // candidates with a row, or a name, of their own in a chart
const MARKS: Record<Side, string> = { better: "✓", worse: "✗", alike: "" };

export function DiagnosisCharts({ diagnosis }: { diagnosis: Diagnosis }) {
  const after = diagnosis.maps[1] ?? diagnosis.maps[0], [map, setMap] = useState(after), [plane, setPlane] = useState<Plane>("ece"), [chosen, choose] = useState(0);
  const candidate = diagnosis.candidates[chosen], under = candidate.maps[map];
  return (
    <section class="diagnosis">
      <div class="controls wide">
        <Radios legend="Calibrated by" name="map" values={diagnosis.maps.map((name): [string, string] => [name, name])} chosen={map} onChoose={setMap} />
        <Radios legend="Axes" name="plane" values={PLANES} chosen={plane} onChoose={setPlane} />
      </div>
      <div class="charts three">
        <TwoSided diagnosis={diagnosis} map={map} plane={plane} chosen={chosen} onChoose={choose} />
        <Errors diagnosis={diagnosis} map={map} chosen={chosen} onChoose={choose} />
        {under.density ? <Densities density={under.density} title={`Confidence when right and when wrong: ${candidate.name}, ${map}`} /> : <p class="legend">{map} could not be fitted for {candidate.name}.</p>}
      </div>
      <Candidates diagnosis={diagnosis} map={map} chosen={chosen} onChoose={choose} />
      {diagnosis.curves.length > 0 && <><h2>Curves</h2><div class="charts two">{diagnosis.curves.map((curves) => <Curves key={curves.title} curves={curves} />)}</div></>}
      <Runs diagnosis={diagnosis} map={map} />
    </section>
  );
}

function Radios<Value extends string>(props: { legend: string; name: string; values: [Value, string][]; chosen: Value; onChoose: (value: Value) => void }) {
  return (
    <fieldset><legend>{props.legend}</legend>{props.values.map(([value, title]) => (
      <label><input type="radio" name={props.name} value={value} checked={value === props.chosen} onChange={() => props.onChoose(value)} /><span>{title}</span></label>))}</fieldset>
  );
}

const range = (spread: Spread): string => (spread.std === null ? number(spread.mean) : `${number(spread.mean)} ± ${spread.std.toFixed(4)}`);

/** Calibration across and refinement upwards: a line from the uncalibrated network to the one after a map. */
function TwoSided({ diagnosis, map, plane, chosen, onChoose }: { diagnosis: Diagnosis; map: string; plane: Plane; chosen: number; onChoose: (place: number) => void }) {
  const [across, up, xTitle, yTitle] = KEYS[plane], [first] = diagnosis.maps;
  const points = diagnosis.candidates.map((one) => ({ one, from: pair(one.maps[first], across, up), to: pair(one.maps[map], across, up) }));
  const candidate = diagnosis.candidates[chosen], { to } = points[chosen];
  const known = points.flatMap(({ from, to: end }) => [from, end]).filter((found): found is [Spread, Spread] => found !== null);
  const reach = (place: 0 | 1): Point => {
    const ends = known.flatMap((found) => [found[place].lowest!, found[place].highest!]), low = Math.min(...ends), high = Math.max(...ends), room = (high - low || 0.01) * 0.12;
    return [Math.max(0, low - room), high + room];
  };
  return (
    <Figure name="two-sided" title={`Calibration against refinement: uncalibrated ○ and after ${map} ●`}
      alt={`Each candidate's ${across} and ${up}, uncalibrated and after ${map}. ${points.map(({ one, from, to: end }) => `${one.name}: ${from ? `${number(from[0].mean)}, ${number(from[1].mean)}` : "none"}; after, ${end ? `${number(end[0].mean)}, ${number(end[1].mean)}` : "none"}`).join(". ")}.`}
      below={<p class="reading answer" aria-live="polite"><b>{candidate.name}</b>{candidate.name === diagnosis.baseline && " (baseline)"} after {map}: {to ? <>{across === "ece" ? "ECE" : across} <output data-value="across">{range(to[0])}</output>, {up === "auroc" ? "AUROC" : up} <output data-value="up">{range(to[1])}</output> over {candidate.seeds.length} {candidate.seeds.length > 1 ? "seeds" : "seed"}. Lines: lowest to highest seed.</> : "not available."}</p>}>
      {(width) => {
        const height = heightOf(width);
        if (known.length === 0) return <text x={MARGIN.left} y={height / 2}>not available</text>;
        const x = linear(reach(0), [MARGIN.left, width - MARGIN.right], percentTick), y = linear(reach(1), [height - MARGIN.bottom, MARGIN.top], percentTick, 4);
        const cross = ([a, b]: [Spread, Spread]) => `M${x.at(a.lowest!).toFixed(1)} ${y.at(b.mean!).toFixed(1)}H${x.at(a.highest!).toFixed(1)}M${x.at(a.mean!).toFixed(1)} ${y.at(b.lowest!).toFixed(1)}V${y.at(b.highest!).toFixed(1)}`;
        // Names stand beside their points, and below the one above where that would cover it.
        const names = new Map<Candidate, number>();
        let last = -Infinity;
        for (const { one, to: end } of [...points].sort((a, b) => (a.to && b.to ? y.at(a.to[1].mean!) - y.at(b.to[1].mean!) : 0)))
          if (end && (points.length <= MOST_ROWS || one === candidate || one.name === diagnosis.baseline)) names.set(one, (last = Math.max(y.at(end[1].mean!) + 4, last + 14)));
        return <>
          <Axes x={x} y={y} width={width} height={height} xTitle={xTitle} yTitle={yTitle} />
          {points.map(({ one, from, to: end }, i) => (
            <g class={`candidate ${i === chosen ? "on" : ""} ${look(one)}`} onPointerEnter={() => onChoose(i)} onClick={() => onChoose(i)}>
              {from && <circle class="start" cx={x.at(from[0].mean!)} cy={y.at(from[1].mean!)} r="4" />}
              {from && end && <line class="way" x1={x.at(from[0].mean!)} y1={y.at(from[1].mean!)} x2={x.at(end[0].mean!)} y2={y.at(end[1].mean!)} />}
              {end && <><path class="cross" d={cross(end)} /><path class="end" d={shape(one, x.at(end[0].mean!), y.at(end[1].mean!))} />
                {names.has(one) && <text y={names.get(one)} {...(x.at(end[0].mean!) > width * 0.65 ? { x: x.at(end[0].mean!) - 10, "text-anchor": "end" } : { x: x.at(end[0].mean!) + 10 })}>{short(one.name, 26)}</text>}</>}
            </g>))}
        </>;
      }}
    </Figure>
  );
}

const pair = (under: UnderMap, across: "ece" | "reliability", up: "auroc" | "refinement"): [Spread, Spread] | null => {
  const [a, b] = [under[across], under[up]];
  return a && b && a.mean !== null && b.mean !== null ? [a, b] : null;
};
const look = (one: Candidate): string => one.overall ?? "baseline";

/** A square for the baseline; triangles up and down for better and worse; a diamond for both; else a circle. */
function shape(one: Candidate, x: number, y: number): string {
  const at = `M${x.toFixed(1)} ${y.toFixed(1)}`;
  return { baseline: `${at}m-5-5h10v10h-10z`, better: `${at}m-6 5h12l-6-11z`, worse: `${at}m-6-5h12l-6 11z`, mixed: `${at}m0-7l6 7-6 7-6-7z`, alike: `${at}m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z` }[look(one)]!;
}

/** The calibration error that every map leaves, a row a candidate; of many those with the lowest, the baseline and the chosen one. */
function Errors({ diagnosis, map: shown, chosen, onChoose }: { diagnosis: Diagnosis; map: string; chosen: number; onChoose: (place: number) => void }) {
  const { maps, candidates: all } = diagnosis, worth = (one: Candidate) => (one === all[chosen] || one.name === diagnosis.baseline ? -1 : one.maps[shown].ece.mean ?? Infinity);
  const best = new Set([...all].sort((a, b) => worth(a) - worth(b)).slice(0, MOST_ROWS)), candidates = all.filter((one) => best.has(one)), top = Math.max(...candidates.flatMap((one) => maps.map((map) => one.maps[map].ece.highest ?? 0))) * 1.05 || 0.01;
  return (
    <Figure name="errors" title={candidates.length < all.length ? `ECE that each map leaves: the ${MOST_ROWS} lowest of ${all.length}` : "ECE that each map leaves"} ratio={Math.min(1.6, Math.max(0.84, 0.16 * candidates.length))}
      alt={candidates.map((one) => `${one.name}: ${maps.map((map) => `${map} ${number(one.maps[map].ece.mean)}`).join(", ")}, at best ${number(one.optimal.mean)}`).join(". ")}
      below={<p class="key">{maps.map((map, i) => <span class={`map-${Math.min(i, 3)}`}><svg width="14" height="12" aria-hidden="true"><path class={`map-${Math.min(i, 3)}`} d={mark(i, 7, 6)} /></svg> {map}</span>)}<span><svg width="8" height="12" aria-hidden="true"><path class="best" d="M4 1V11" /></svg> best temperature</span></p>}>
      {(width) => {
        const height = heightOf(width, Math.min(1.6, Math.max(0.84, 0.16 * candidates.length))), letters = Math.max(...candidates.map((one) => one.name.length)), left = Math.round(Math.min(width * 0.42, 16 + 7.6 * letters)), foot = height - MARGIN.bottom, lane = (foot - MARGIN.top) / candidates.length;
        const x = linear([0, top], [left, width - MARGIN.right], percentTick);
        return <>
          <g class="axes" aria-hidden="true">{x.ticks.map((tick) => <g><line class="grid" x1={x.at(tick)} x2={x.at(tick)} y1={MARGIN.top} y2={foot} /><text x={x.at(tick)} y={foot + 16} text-anchor="middle">{x.text(tick)}</text></g>)}
            <text class="title" x={(left + width) / 2} y={height - 5} text-anchor="middle">ECE, % (left is better)</text></g>
          {candidates.map((one, i) => {
            const step = Math.min(14, lane / (maps.length + 1)), middle = MARGIN.top + lane * (i + 0.5), names = short(one.name, Math.floor((left - 10) / 7.8));
            const place = all.indexOf(one);
            return <g class={`row ${place === chosen ? "on" : ""}`} onPointerEnter={() => onChoose(place)} onClick={() => onChoose(place)}>
              <rect class="hit" x="0" y={middle - lane / 2} width={width} height={lane} /><text x={left - 6} y={middle} dy=".32em" text-anchor="end">{names}<title>{one.words}</title></text>
              {one.optimal.mean !== null && <path class="best" d={`M${x.at(one.optimal.mean).toFixed(1)} ${(middle - (step * maps.length) / 2).toFixed(1)}v${(step * maps.length).toFixed(1)}`} />}
              {maps.map((map, k) => {
                const { mean, lowest, highest } = one.maps[map].ece, y = middle + step * (k - (maps.length - 1) / 2);
                return mean !== null && <g><line class="whisker" x1={x.at(lowest!)} x2={x.at(highest!)} y1={y} y2={y} /><path class={`map-${Math.min(k, 3)}`} d={mark(k, x.at(mean), y)} /></g>;
              })}
            </g>;
          })}
        </>;
      }}
    </Figure>
  );
}

const mark = (i: number, x: number, y: number): string => `M${x.toFixed(1)} ${y.toFixed(1)}${["m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "m-4-4h8v8h-8z", "m0-5l5 5-5 5-5-5z", "m-5 4h10l-5-9z"][Math.min(i, 3)]}`;

/** Candidates, sorted as a reader likes; a click shows one in the charts above. */
function Candidates({ diagnosis, map, chosen, onChoose }: { diagnosis: Diagnosis; map: string; chosen: number; onChoose: (place: number) => void }) {
  const { candidates, maps: [first] } = diagnosis, place = (row: Candidate) => candidates.indexOf(row);
  const cells = (title: string, of: (row: Candidate) => Spread, key?: keyof Candidate["sides"]): Column<Candidate> => ({
    title, worth: (row) => of(row).mean, side: (row) => (key && row.sides[key]) || "", cell: (row) => <>{range(of(row))}{key && <i>{MARKS[row.sides[key] ?? "alike"]}</i>}</> });
  const columns: Column<Candidate>[] = [
    { title: "candidate", text: true, worth: (row) => row.name, cell: (row) => <><button type="button" class="plain" aria-pressed={place(row) === chosen} onClick={() => onChoose(place(row))}>{row.name}</button>{row.name === diagnosis.baseline && <span class="badge">baseline</span>}</> },
    cells("accuracy", (row) => row.accuracy, "accuracy"), cells("ECE", (row) => row.maps[first].ece, "raw"),
    ...(map === first ? [] : [cells(`ECE, ${map}`, (row) => row.maps[map].ece, map === "temperature" ? "ece" : undefined)]),
    cells("ECE at best", (row) => row.optimal), cells("AUROC", (row) => row.maps[first].auroc, "auroc"),
    { title: `confidence − accuracy${map === first ? "" : `, ${map}`}`, worth: (row) => Math.abs(row.maps[map].gap[0] ?? NaN), cell: (row) => { const [gap, low, high] = row.maps[map].gap; return gap === null ? "–" : <>{signed(gap, 4)} <small>{low !== null && high !== null && `${signed(low, 4)} … ${signed(high, 4)}`}</small></>; } },
  ];
  return <SortTable name="candidates" title="Candidates" rows={candidates} columns={columns} id="name" sought={(row) => `${row.name} ${row.words}`} hint="name of a candidate" first={map === first ? 2 : 3} falls={false} nothing="No candidate has such a name."
    legend={`${candidates.some((one) => one.seeds.length > 1) ? "Mean ± standard deviation over seeds. " : ""}✓ clearly better, ✗ clearly worse than ${diagnosis.baseline} on the same samples. At best: the lowest ECE of any temperature, searched on the test samples. Confidence − accuracy has its 95 % interval.`} />;
}

interface Run { id: string; name: string; seed: number; folder: string; accuracy: number | null; raw: number | null; ece: number | null; auroc: number | null; temperature: number | null }

function Runs({ diagnosis, map }: { diagnosis: Diagnosis; map: string }) {
  const [first] = diagnosis.maps;
  const rows = useMemo(() => diagnosis.candidates.flatMap((one) => one.seeds.map((seed, i): Run => ({
    id: one.folders[i], name: one.name, seed, folder: one.folders[i], accuracy: one.accuracy.values[i], temperature: one.temperature.values[i],
    raw: one.maps[first].ece.values[i], ece: one.maps[map].ece.values[i], auroc: one.maps[map].auroc.values[i] }))), [diagnosis, map]);
  const numbers = (title: string, key: "accuracy" | "raw" | "ece" | "auroc" | "temperature"): Column<Run> => ({ title, worth: (row) => row[key], cell: (row) => number(row[key]) });
  const columns: Column<Run>[] = [
    { title: "candidate", text: true, worth: (row) => row.name, cell: (row) => row.name }, { title: "seed", worth: (row) => row.seed, cell: (row) => row.seed },
    numbers("accuracy", "accuracy"), numbers("ECE", "raw"), ...(map === first ? [] : [numbers(`ECE, ${map}`, "ece")]), numbers(`AUROC, ${map}`, "auroc"), numbers("T", "temperature"),
    { title: "folder", text: true, wide: true, worth: (row) => row.folder, cell: (row) => <code>{row.folder}</code> },
  ];
  return <SortTable name="runs" title="Runs" rows={rows} columns={columns} id="id" sought={(row) => `${row.name} ${row.seed} ${row.folder}`} hint="candidate, seed or folder" first={0} falls={false} nothing="No run has such a name." legend="Single runs: their numbers differ by the seed alone where the candidate is the same." />;
}

/** Lines with their range over runs; one group at a time, and one line in front. */
function Curves({ curves }: { curves: CurveGroups }) {
  const [shown, show] = useState(0), [front, bring] = useState(-1), [at, point] = useState(-1), group = curves.groups[Math.min(shown, curves.groups.length - 1)], { series } = group;
  const xs = [...new Set(series.flatMap((one) => one.x))].sort((a, b) => a - b), isShare = group.share;
  const written = (value: number | null | undefined) => (value === null || value === undefined ? "–" : isShare ? share(value) : number(value)), name = (x: number) => curves.names?.[x] ?? String(x);
  const ends = series.flatMap((one) => [...one.mean, ...(one.lowest ?? []), ...(one.highest ?? [])]).filter((value): value is number => value !== null);
  const low = Math.min(...ends), high = Math.max(...ends), room = (high - low || 0.01) * 0.08, least = low >= 0 && low < high / 3 ? 0 : low - room;
  const read = (one: Series) => written(one.mean[one.x.indexOf(xs[Math.max(0, at)])]);
  return (
    <Figure name="curves" title={curves.title} ratio={0.62} steps="point" onWalk={(event) => point(walked(event, at, xs.length) ?? at)} onLeave={() => point(-1)}
      alt={`${group.title} over ${curves.x_title || "files"}. ${series.map((one) => `${one.name}: ${written(one.mean[0])} at ${name(one.x[0])}, ${written(one.mean.at(-1))} at ${name(one.x.at(-1)!)}`).join(". ")}.`}
      below={<>
        <Reading idle={`${group.title}.${series.some(({ lowest, highest }) => lowest?.some((value, i) => value !== highest![i])) ? ` Bands: ${curves.over}.` : ""} Point at the chart, or use its arrow keys, to read it.`}>{at >= 0 && `At ${name(xs[at])}: ${series.map((one) => `${one.name} ${read(one)}`).join(", ")}`}</Reading>
        <p class="key">{series.map((one, i) => <button type="button" class={`line-${i % 6}`} aria-pressed={front === i} onClick={() => bring(front === i ? -1 : i)}><svg width="26" height="10" aria-hidden="true"><path class="series" d="M1 5H25" /></svg> {one.name}</button>)}</p>
        {curves.groups.length > 1 && <label class="search">Show <select value={shown} onChange={(event) => show(Number(event.currentTarget.value))}>{curves.groups.map(({ title }, i) => <option value={i}>{title}</option>)}</select></label>}</>}>
      {(width) => {
        const height = heightOf(width, 0.62), right = width - MARGIN.right, y = linear([least, high + room], [height - MARGIN.bottom, MARGIN.top], isShare ? percentTick : (value) => String(Number(value.toPrecision(3))), 4);
        const x = curves.names ? named(curves.names, MARGIN.left, right) : curves.log && xs[0] > 0 && xs.length > 1 ? logarithmic([xs[0], xs.at(-1)!], [MARGIN.left, right]) : linear([xs[0], xs.at(-1)!], [MARGIN.left, right], (value) => String(value));
        const find = (event: PointerEvent) => {
          const frame = (event.currentTarget as SVGElement).ownerSVGElement!.getBoundingClientRect(), place = ((event.clientX - frame.left) * width) / frame.width, away = xs.map((value) => Math.abs(x.at(value) - place));
          point(away.indexOf(Math.min(...away)));
        };
        const line = (one: Series) => path(one.x.map((value, i): Point => [x.at(value), one.mean[i] === null ? NaN : y.at(one.mean[i]!)]));
        const filled = (one: Series) => one.lowest && one.highest && [...one.lowest, ...one.highest].every((value) => value !== null) && band(one.x, one.lowest as number[], one.highest as number[], x, y);
        return <>
          <Axes x={x} y={y} width={width} height={height} xTitle={curves.x_title} yTitle={isShare ? `${group.title.split(",")[0]}, %` : group.title.split(",")[0]} />
          {at >= 0 && <line class="base" x1={x.at(xs[at])} x2={x.at(xs[at])} y1={MARGIN.top} y2={height - MARGIN.bottom} />}
          {series.map((one, i) => <g class={`line-${i % 6} ${front >= 0 && front !== i ? "back" : ""}`}>{filled(one) && <path class="spread" d={filled(one) as string} />}<path class="series" d={line(one)} />{one.x.map((value, k) => one.mean[k] !== null && <circle cx={x.at(value)} cy={y.at(one.mean[k]!)} r={one.x.length > 30 ? 0 : 2.5} />)}</g>)}
          <rect class="hit" x={MARGIN.left} y={MARGIN.top} width={right - MARGIN.left} height={height - MARGIN.top - MARGIN.bottom} onPointerMove={find} />
        </>;
      }}
    </Figure>
  );
}
