/** The charts: sums in, SVG out. What hue shows is also shown by hatching, dashes or shape. */
import { useContext, useId, useState } from "preact/hooks";
import type { Bin } from "./bins";
import type { Words } from "./claims";
import type { Corp, Density, Risk } from "./data";
import { Pick } from "./pick";
import { Axes, band, Figure, heightOf, linear, logarithmic, MARGIN, number, path, percentTick, type Point, type Scale, share, walked, whole } from "./plot";
import type { ComponentChildren } from "preact";

const STRIP = 34; // height of the histogram under the reliability diagram
const FEW = 10; // samples below which a bin is drawn pale

const inner = (width: number, height: number): [Point, Point] => [[MARGIN.left, width - MARGIN.right], [height - MARGIN.bottom, MARGIN.top]];
const diagonal = (x: Scale, y: Scale) => <line class="diagonal" x1={x.at(0)} y1={y.at(0)} x2={x.at(1)} y2={y.at(1)} />;

/** A box as part of a path. */
const box = (left: number, right: number, top: number, foot: number): string => `M${left.toFixed(1)} ${foot.toFixed(1)}V${top.toFixed(1)}H${right.toFixed(1)}V${foot.toFixed(1)}Z`;

/** What is read off a chart in the place of its legend, which keeps its room, so that nothing below moves. */
export const Reading = ({ idle, children }: { idle: string; children?: ComponentChildren }) =>
  <p class="reading either" aria-live="polite"><span class={children ? "away" : ""}>{idle}</span>{children && <span>{children}</span>}</p>;

/** Accuracy in bins of confidence; hatched where it falls short, plain where it exceeds. Arrow keys walk the bins. */
export function Reliability(props: { name: string; title: string; words: Words; bins: Bin[]; alt: string; other?: Bin[]; below?: ComponentChildren }) {
  const { bins, other, words } = props, id = useId(), [chosen, choose] = useState(-1), picks = useContext(Pick);
  const bin = bins[chosen] as Bin | undefined, most = Math.max(...bins.map((one) => one.count)), n = bins.reduce((sum, one) => sum + one.count, 0);
  const walk = (event: KeyboardEvent) => {
    if (event.key === "Enter" && bin) picks?.bin(bin.low, bin.high, words.of);
    choose(walked(event, chosen, bins.length) ?? chosen);
  };
  return (
    <Figure name={props.name} title={props.title} alt={props.alt} onWalk={walk} onLeave={() => choose(-1)} below={<>
      <Reading idle={`Hatched: ${words.less}; blue: more often. Pale: within chance, or under 10 samples. On the dashed line: calibrated. Upright lines: 95 % intervals. At the foot: samples, at most ${share(most / n, 0)} a bin.`}>{bin && `${words.bin(bin)}.${picks ? " Click or press Enter for its samples." : ""}`}</Reading>{props.below}</>}>
      {(width) => {
        const height = heightOf(width), [across, up] = inner(width, height);
        const x = linear([0, 1], across, percentTick), y = linear([0, 1], [up[0] - STRIP, up[1]], percentTick);
        // One path a kind of mark, however many bins there are: this is redrawn while a slider moves.
        const marks = { bar: "", over: "", "over pale": "", under: "", "under pale": "", level: "", whisker: "", strip: "" };
        const inset = bins.length > 40 ? 0.2 : 0.5;
        for (const one of bins) {
          const left = x.at(one.low) + inset, right = Math.max(x.at(one.high) - inset, left + 0.5), middle = x.at(one.confidence).toFixed(1), at = y.at(one.accuracy);
          const beyond = one.count >= FEW && (one.confidence < one.band[0] || one.confidence > one.band[1]);
          marks.bar += box(left, right, at, y.at(0));
          marks[`${one.accuracy < one.confidence ? "over" : "under"}${beyond ? "" : " pale"}`] += box(left, right, Math.min(at, y.at(one.confidence)), Math.max(at, y.at(one.confidence)));
          marks.level += `M${left.toFixed(1)} ${at.toFixed(1)}H${right.toFixed(1)}`;
          if (bins.length <= 40) marks.whisker += `M${middle} ${y.at(one.band[0]).toFixed(1)}V${y.at(one.band[1]).toFixed(1)}`;
          marks.strip += box(left, right, up[0] - (STRIP - 8) * (one.count / most), up[0]);
        }
        const point = (event: PointerEvent) => {
          const frame = (event.currentTarget as SVGElement).ownerSVGElement!.getBoundingClientRect(), at = ((event.clientX - frame.left) * width) / frame.width;
          choose(bins.findIndex((one) => x.at(one.low) <= at && at <= x.at(one.high)));
        };
        return (
          <>
            <defs><pattern id={id} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="over-tint" width="6" height="6" /><line class="over-line" y2="6" /></pattern></defs>
            <Axes x={x} y={y} width={width} height={height} xTitle={words.x} yTitle={words.y} />
            {bin && <rect class="chosen" x={x.at(bin.low)} width={x.at(bin.high) - x.at(bin.low)} y={up[1]} height={up[0] - up[1]} />}
            {Object.entries(marks).map(([name, d]) => <path key={name} class={name} d={d} fill={name.startsWith("over") ? `url(#${id})` : undefined} />)}
            {diagonal(x, y)}
            {other && <path class="other" d={path(other.filter((one) => one.count >= FEW).map((one): Point => [x.at(one.confidence), y.at(one.accuracy)]))} />}
            <rect class="hit" x={across[0]} width={across[1] - across[0]} y={up[1]} height={up[0] - up[1]} onPointerMove={point} onClick={() => bin && picks?.bin(bin.low, bin.high, words.of)} />
          </>);
      }}
    </Figure>
  );
}

/** The isotonic curve: no bins, no bandwidth. */
export function BinFree(props: { words: Words; corp: Corp; alt: string; other?: Corp; below?: ComponentChildren }) {
  const { corp, other, words } = props;
  const line = (of: Corp, x: Scale, y: Scale) => path(of.confidence.map((value, i): Point => [x.at(value), y.at(of.curve[i])]));
  return (
    <Figure name="reliability" title={words.title} alt={props.alt} below={<>
      <p class="reading">Grey: where 95 of 100 calibrated models with these {words.of ? "probabilities" : "confidences"} would lie.</p>{props.below}</>}>
      {(width) => {
        const height = heightOf(width), [across, up] = inner(width, height);
        const x = linear([0, 1], across, percentTick), y = linear([0, 1], up, percentTick);
        return <>
          <Axes x={x} y={y} width={width} height={height} xTitle={words.x} yTitle={words.y} />
          <path class="consistency" d={band(corp.confidence, corp.lower, corp.upper, x, y)} />
          {diagonal(x, y)}
          {other && <path class="other" d={line(other, x, y)} />}
          <path class="curve" d={line(corp, x, y)} />
        </>;
      }}
    </Figure>
  );
}

export function Densities({ density, title = "Confidence when right and when wrong" }: { density: Density; title?: string }) {
  const at = density.right.map((_, i) => i / Math.max(1, density.right.length - 1)), n = density.n_right + density.n_wrong;
  const top = Math.max(...density.right, ...density.wrong) * 1.06;
  const parts = [["right", density.right, density.n_right], ["wrong", density.wrong, density.n_wrong]] as const;
  return (
    <Figure name="density" title={title}
      alt={`Densities of confidence of ${whole(density.n_right)} right and ${whole(density.n_wrong)} wrong predictions. AUROC ${number(density.auroc)}.`}
      below={<>
        <p class="key">{parts.map(([name, , count]) => <span class={name}><i aria-hidden="true" />{name}: {whole(count)} ({share(count / n, 0)})</span>)}</p>
        <p class="reading">{density.auroc === null ? "All predictions are alike, so there is nothing to separate."
          : `AUROC ${number(density.auroc)}: how well confidence separates right from wrong (0.5 by chance, 1 at best). The less the two overlap, the better.`}</p></>}>
      {(width) => {
        const height = heightOf(width), [across, up] = inner(width, height);
        const x = linear([0, 1], across, percentTick), y = linear([0, top], up, (value) => String(value), 4);
        return <>
          <Axes x={x} y={y} width={width} height={height} xTitle="Confidence, %" yTitle="Density" />
          {parts.filter(([, , count]) => count > 0).map(([name, values]) => <g class={name}>
            <path class="area" d={band(at, at.map(() => 0), values, x, y)} />
            <path class="line" d={path(at.map((value, i): Point => [x.at(value), y.at(values[i])]))} />
          </g>)}
        </>;
      }}
    </Figure>
  );
}

/** Errors that remain when only the most confident samples are answered; a dot at the chosen threshold. */
export function RiskCoverage(props: { risk: Risk; other?: Risk; n: number; dot: Point | null; below: ComponentChildren }) {
  // Below thirty samples the band would only show that they are few.
  const { risk, other, dot } = props, enough = Math.max(0, risk.coverage.findIndex((value) => value >= Math.max(0.05, 30 / props.n)));
  const top = Math.max(0.01, ...risk.risk.slice(enough), ...(other?.risk.slice(enough) ?? []), dot ? dot[1] : 0) * 1.12, cut = (values: number[]) => values.slice(enough).map((value) => Math.min(value, top));
  return (
    <Figure name="risk" title="Errors among the samples answered"
      alt={`Risk-coverage curve: ${share(risk.risk.at(-1)!)} errors if all samples are answered. Area under it ${number(risk.aurc)}${other ? `, under that of the other ${number(other.aurc)}` : ""}.`} below={props.below}>
      {(width) => {
        const height = heightOf(width), [across, up] = inner(width, height);
        const x = linear([0, 1], across, percentTick), y = linear([0, top], up, percentTick);
        const line = (values: number[], of = risk) => path(of.coverage.map((value, i): Point => [x.at(value), values[i] > top ? NaN : y.at(values[i])]));
        return <>
          <Axes x={x} y={y} width={width} height={height} xTitle="Samples answered, %" yTitle="Wrong among them, %" />
          <path class="consistency" d={band(risk.coverage.slice(enough), cut(risk.low), cut(risk.high), x, y)} />
          <path class="ideal" d={line(risk.optimal)} />
          {other && <path class="other" d={line(other.risk, other)} />}
          <path class="curve" d={line(risk.risk)} />
          {dot && <g class="dot"><line x1={x.at(dot[0])} x2={x.at(dot[0])} y1={y.at(dot[1])} y2={up[0]} /><line x1={across[0]} x2={x.at(dot[0])} y1={y.at(dot[1])} y2={y.at(dot[1])} /><circle cx={x.at(dot[0])} cy={y.at(dot[1])} r="5" /></g>}
        </>;
      }}
    </Figure>
  );
}

/** A score against the temperature, with the fitted one and the one in use; a click moves it. */
export function Curve(props: {
  name: string; title: string; yTitle: string; temperatures: number[]; values: number[]; fitted: number | null; place: number; onMove: (place: number) => void; below: ComponentChildren;
}) {
  const { temperatures, values, fitted, place } = props;
  const sorted = [...values].sort((a, b) => a - b), low = sorted[0];
  // The far ends may be huge: the range ends where the uncalibrated model and most temperatures still fit.
  const one = values[temperatures.indexOf(1)];
  const high = Math.max(one, sorted[Math.floor(sorted.length * 0.7)], low + 1e-6), foot = Math.max(0, low - (high - low) * 0.12), top = high + (high - low) * 0.15;
  return (
    <Figure name={props.name} title={props.title} ratio={0.7}
      alt={`${props.title}. ${number(one)} at 1, ${number(values[place])} at ${temperatures[place].toFixed(2)}${fitted === null ? "" : `; fitted temperature ${fitted.toFixed(2)}`}.`} below={props.below}>
      {(width) => {
        const height = heightOf(width, 0.7), [across, up] = inner(width, height);
        const x = logarithmic([temperatures[0], temperatures.at(-1)!], across), digits = top - foot < 0.2 ? 3 : 2;
        const y = linear([foot, top], up, (value) => String(Number(value.toFixed(digits))), 4);
        const pick = (event: PointerEvent) => {
          const box = (event.currentTarget as SVGElement).ownerSVGElement!.getBoundingClientRect(), at = ((event.clientX - box.left) * width) / box.width;
          const away = temperatures.map((value) => Math.abs(x.at(value) - at));
          props.onMove(away.indexOf(Math.min(...away)));
        };
        return <>
          <Axes x={x} y={y} width={width} height={height} xTitle="Temperature" yTitle={props.yTitle} />
          <path class="curve" d={path(temperatures.map((value, i): Point => [x.at(value), values[i] > top ? NaN : y.at(values[i])]))} />
          {fitted !== null && <g class="mark"><line x1={x.at(fitted)} x2={x.at(fitted)} y1={up[0]} y2={up[1]} /><text x={x.at(fitted)} dx={x.at(fitted) > width * 0.6 ? -5 : 5} y={up[1] + 9} text-anchor={x.at(fitted) > width * 0.6 ? "end" : "start"}>fitted: {fitted.toFixed(2)}</text></g>}
          <g class="dot"><circle cx={x.at(temperatures[place])} cy={Math.max(y.at(values[place]), up[1])} r="5" /></g>
          <rect class="hit" x={across[0]} y={up[1]} width={across[1] - across[0]} height={up[0] - up[1]} onPointerDown={pick} onPointerMove={(event) => { if (event.buttons) pick(event); }} />
        </>;
      }}
    </Figure>
  );
}
