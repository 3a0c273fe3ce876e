/** Metrics over time: values with their intervals, the mean since the last change, and the periods in which one changed. */
import { useState } from "preact/hooks";
import type { Trend, TrendMetric } from "./data";
import { Axes, Figure, heightOf, linear, MARGIN, named, number, short, walked, whole } from "./plot";

const MANY = 24; // periods that need the whole width
const WORDS = { better: "became better", worse: "became worse", alike: "changed" };

export function TrendCharts({ trend }: { trend: Trend }) {
  const [at, point] = useState(-1);
  return (
    <section class="trend">
      <div class={trend.periods.length > MANY ? "charts one" : "charts"}>{trend.metrics.map((metric) => <OverTime key={metric.name} trend={trend} metric={metric} at={at} onPoint={point} />)}</div>
      <p class="legend">Lines: 95 % intervals. Diamond: changed beyond chance in this period. Dotted: mean since the last change. Point at a chart, or use its arrow keys, to read it.</p>
    </section>
  );
}

/** One metric; arrow keys walk the periods. */
function OverTime({ trend: { periods }, metric, at, onPoint }: { trend: Trend; metric: TrendMetric; at: number; onPoint: (place: number) => void }) {
  const { values, levels } = metric, [live, setLive] = useState(false), changed = values.flatMap((one, i) => (one.change ? [i] : []));
  const words = (i: number) => `${short(periods[i].name, 40)}: ${number(values[i].value)}${values[i].low === null ? "" : ` (${number(values[i].low)} … ${number(values[i].high)})`}, ${whole(periods[i].n)} samples${values[i].change ? `; ${WORDS[values[i].change!.side]}, ${values[i].change!.difference > 0 ? "+" : "−"}${number(Math.abs(values[i].change!.difference))} against the periods before together` : ""}`;
  const ends = [...values.flatMap((one) => [one.value, one.low, one.high]), ...levels].filter((value): value is number => value !== null);
  const low = Math.min(...ends), high = Math.max(...ends), room = (high - low || 0.01) * 0.08, least = low >= 0 && low < high / 3 ? 0 : low - room;
  const most = periods.length > MANY ? 260 : 420, better = metric.lower_is_better === null ? "" : metric.lower_is_better ? " (down is better)" : " (up is better)";
  const walk = (event: KeyboardEvent) => {
    const place = walked(event, at, periods.length);
    if (place !== undefined) { setLive(true); onPoint(place); }
  };
  return (
    <Figure name={`trend-${metric.name}`} title={`${metric.title}${better}`} ratio={0.62} most={most} steps="period" onWalk={walk} onLeave={() => { setLive(false); onPoint(-1); }}
      alt={`${metric.title} over ${periods.length} periods, ${number(values[0].value)} in the first and ${number(values.at(-1)!.value)} in the last. ${changed.length ? changed.map(words).join(". ") : "No change beyond chance"}.`}
      below={<p class="reading" aria-live={live ? "polite" : "off"}>{at < 0 ? (changed.length ? `Changed in ${changed.map((i) => short(periods[i].name, 24)).join(", ")}.` : "No change beyond chance.") : `${words(at)}.`}</p>}>
      {(width) => {
        const height = heightOf(width, 0.62, most), right = width - MARGIN.right, foot = height - MARGIN.bottom;
        const x = named(periods.map(({ name }) => short(name, 14)), MARGIN.left, right), y = linear([least, high + room], [foot, MARGIN.top], (value) => String(Number(value.toPrecision(3))), 4), half = (right - MARGIN.left) / periods.length / 2;
        const find = (event: PointerEvent) => {
          const frame = (event.currentTarget as SVGElement).ownerSVGElement!.getBoundingClientRect(), place = ((event.clientX - frame.left) * width) / frame.width;
          onPoint(Math.max(0, Math.min(periods.length - 1, Math.floor((place - MARGIN.left) / half / 2))));
        };
        return <>
          <Axes x={x} y={y} width={width} height={height} xTitle="Period" yTitle={metric.name} />
          {at >= 0 && <rect class="chosen" x={x.at(at) - half} width={2 * half} y={MARGIN.top} height={foot - MARGIN.top} />}
          <path class="ideal" d={levels.map((level, i) => (level === null ? "" : `M${(x.at(i) - half).toFixed(1)} ${y.at(level).toFixed(1)}h${(2 * half).toFixed(1)}`)).join("")} />
          <path class="whisker" d={values.map((one, i) => (one.low === null || one.high === null ? "" : `M${x.at(i).toFixed(1)} ${y.at(one.low).toFixed(1)}V${y.at(one.high).toFixed(1)}`)).join("")} />
          {values.map((one, i) => one.value !== null && (one.change
            ? <g class={`changed ${one.change.side}`}><line x1={x.at(i)} x2={x.at(i)} y1={MARGIN.top} y2={foot} /><path d={`M${x.at(i).toFixed(1)} ${(y.at(one.value) - 7).toFixed(1)}l6 7-6 7-6-7z`} /></g>
            : <circle class="value-dot" cx={x.at(i)} cy={y.at(one.value)} r={periods.length > MANY ? 2.5 : 3.5} />))}
          <rect class="hit" x={MARGIN.left} y={MARGIN.top} width={right - MARGIN.left} height={foot - MARGIN.top} onPointerMove={find} />
        </>;
      }}
    </Figure>
  );
}
