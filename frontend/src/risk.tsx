/** The probability of the second of two classes: how often it comes true, and what acting on it gains. */
import { useState } from "preact/hooks";
import type { Positive } from "./data";
import { Slider } from "./explorer";
import { Axes, band, Figure, heightOf, linear, MARGIN, path, percentTick, type Point } from "./plot";

const inner = (width: number, height: number): [Point, Point] => [[MARGIN.left, width - MARGIN.right], [height - MARGIN.bottom, MARGIN.top]];
const known = (values: (number | null)[]): number[] => values.map((value) => value ?? NaN);
/** Two digits of a small number, or so many decimals; share_text of the reports in words does the same. */
const decimals = (value: number, least: number): string => value >= 1e-8 && value < 10 ** (1 - least) ? String(Number(value.toPrecision(2))) : value.toFixed(least);
const per100 = (value: number): string => `${value < 0 ? "−" : ""}${decimals(Math.abs(100 * value), 2)}`;
const share = (value: number, digits = 1): string => `${decimals(100 * value, digits)} %`;

export function RiskCharts({ positive, other, title }: { positive: Positive; other?: Positive; title?: string }) {
  const of = positive.name === null ? "class 1" : `“${positive.name}”`;
  return (
    <section class="risk">
      <h2>Probability of {of}</h2>
      <div class="charts">
        <Observed positive={positive} other={other} of={of} title={title} />
        <Decisions decisions={positive.decisions} other={other?.decisions} of={of} title={title} />
      </div>
    </section>
  );
}

/** Share of the class at each probability of it: tenths of the samples, and a smooth curve with its band. */
function Observed({ positive: { tenths, curve }, other, of, title }: { positive: Positive; other?: Positive; of: string; title?: string }) {
  const most = 1.1 * Math.max(...tenths.map((one) => one[3]), curve ? curve.risk.at(-1)! : Math.max(...tenths.map((one) => one[5]))), top = most > 0.9 ? 1 : most, highest = tenths.at(-1)!;
  return (
    <Figure name="risk" title={`How often ${of} occurs`} alt={`Calibration curve of the probability of ${of}. Where it is highest, ${share(highest[0])} are predicted and ${share(highest[1])} are observed.`}
      below={<p class="reading">Circles: tenths of the samples with 95 % intervals. {curve && "Line: a smooth curve with its 95 % band."}{other && ` Dashed: ${title}.`} On the straight line, it comes true as often as it says. Highest tenth, from {share(highest[4])}: <output data-value="highest">{share(highest[1])}</output> ({share(highest[2])} to {share(highest[3])}), predicted {share(highest[0])}.</p>}>
      {(width) => {
        const height = heightOf(width), [across, up] = inner(width, height);
        const x = linear([0, top], across, percentTick), y = linear([0, top], up, percentTick), capped = (values: number[]) => values.map((value) => Math.min(value, top));
        const line = (one: NonNullable<Positive["curve"]>) => path(one.risk.map((value, i): Point => [x.at(value), one.observed[i] > top || value > top ? NaN : y.at(one.observed[i])]));
        return <>
          <Axes x={x} y={y} width={width} height={height} xTitle={`Probability of ${of}, %`} yTitle={`Samples that are ${of}, %`} />
          {curve && <path class="consistency" d={band(curve.risk, capped(curve.low), capped(curve.high), x, y)} />}
          <line class="diagonal" x1={x.at(0)} y1={y.at(0)} x2={x.at(top)} y2={y.at(top)} />
          {other?.curve && <path class="other" d={line(other.curve)} />}
          {curve && <path class="curve" d={line(curve)} />}
          {tenths.map(([predicted, observed, low, high]) => <g class="tenth"><line class="level" x1={x.at(predicted)} x2={x.at(predicted)} y1={y.at(low)} y2={y.at(Math.min(high, top))} /><circle cx={x.at(predicted)} cy={y.at(observed)} r="4" /></g>)}
        </>;
      }}
    </Figure>
  );
}

/** Net benefit of acting above each threshold, beside acting on all and on none. */
function Decisions({ decisions, other, of, title }: { decisions: Positive["decisions"]; other?: Positive["decisions"]; of: string; title?: string }) {
  const { threshold, benefit, all } = decisions, low = known(decisions.low), high = known(decisions.high);
  const [place, move] = useState(Math.max(0, threshold.findIndex((value) => value >= 0.1))), at = threshold[place];
  const top = 1.12 * Math.max(0.001, ...benefit, ...(other?.benefit ?? []), ...high.filter((value) => !Number.isNaN(value)), ...all), foot = -0.35 * top;
  const within = (values: number[]) => values.map((value) => Math.max(Math.min(value, top), foot));
  return (
    <Figure name="decisions" title="What acting on it gains" alt={`Decision curve: net benefit of acting from each probability of ${of}. At ${share(at, 0)} ${per100(benefit[place])} true positives per 100 samples; acting on all ${per100(all[place])}.`}
      below={<>
        <div class="controls"><Slider label="Act from" min={0} max={threshold.length - 1} value={place} text={share(at, 0)} onMove={move} /></div>
        <p class="reading" aria-live="polite">Act from {share(at, 0)}, where a missed {of} costs {Number(((1 - at) / at).toPrecision(2))} times a needless act: net benefit <output data-value="benefit">{per100(benefit[place])}</output>{Number.isNaN(low[place]) ? "" : ` (${per100(low[place])} to ${per100(high[place])})`} true positives per 100 samples; on all {per100(all[place])}, on none 0{other && `, ${title} ${per100(other.benefit[place])}`}. It acts on {share(decisions.treated[place])} of samples{decisions.found[place] !== null && `, finds ${share(decisions.found[place]!)} of ${of}`}{decisions.right[place] !== null && `, and is right ${share(decisions.right[place]!)} of the time`}. Dotted: acting on all{other && `; dashed: ${title}`}; shaded: 95 % intervals.</p></>}>
      {(width) => {
        const height = heightOf(width), [across, up] = inner(width, height);
        const x = linear([0, 1], across, percentTick), y = linear([foot, top], up, percentTick);
        const line = (values: number[]) => path(values.map((value, i): Point => [x.at(threshold[i]), value < foot ? NaN : y.at(value)]));
        return <>
          <Axes x={x} y={y} width={width} height={height} xTitle={`Act from this probability of ${of}, %`} yTitle="Net benefit per 100 samples" />
          {!Number.isNaN(low[0]) && <path class="consistency" d={band(threshold, within(low), within(high), x, y)} />}
          <line class="diagonal" x1={across[0]} x2={across[1]} y1={y.at(0)} y2={y.at(0)} />
          <path class="ideal" d={line(all)} />
          {other && <path class="other" d={line(other.benefit)} />}
          <path class="curve" d={line(benefit)} />
          {benefit[place] >= foot && <g class="dot"><circle cx={x.at(at)} cy={y.at(benefit[place])} r="5" /></g>}
        </>;
      }}
    </Figure>
  );
}
