/** What is on the screen, kept in the address behind the #: links, reload and the back button work. */
import { useEffect, useState } from "preact/hooks";
import { PARTS } from "../clamping";
import type { Part } from "../data";
import { type Kind, type Source, type Split, TEXTS } from "./client";

export type Screen = "open" | "evaluate" | "models" | "calibrate" | "clamp" | "learn";
export interface State { screen: Screen; source: Source | null; baseline: Source | null; bins: number; seed: number; methods: string[]; fitted: string[] | null; curves: string[]; network: string; sample: number; part: Part }
export const needsFile = (screen: Screen): boolean => screen !== "open" && screen !== "clamp";

const FLAGS = ["normalise", "percent", "classes"] as const;

export function parse(hash: string): State {
  const given = new URLSearchParams(hash.replace(/^#/, "")), file = given.get("file");
  const source: Source | null = file ? { file } : null;
  const held = <T,>(name: string): T | null => { const text = given.get(name); try { return text ? (JSON.parse(text) as T) : null; } catch { return null; /* an address that was edited */ } };
  if (source) {
    const kind = given.get("kind");
    if (kind) source.kind = kind as Kind;
    for (const name of TEXTS) { const value = given.get(name); if (value) source[name] = value; }
    for (const name of FLAGS) if (given.has(name)) source[name] = true;
    if (given.has("by")) source.by = given.getAll("by");
    const labels = given.get("labels_file");
    if (labels) source.labels_file = { file: labels };
    source.split = held<Split>("split") ?? undefined;
  }
  const screen = given.get("screen") as Screen | null, count = (name: string, least: number, usual: number) => Math.max(least, Math.round(Number(given.get(name) ?? usual)) || usual);
  const part = given.get("part") as Part | null, list = (name: string) => (given.get(name) ?? "").split(",").filter(Boolean), fitted = list("fitted");
  return { screen: screen && (source || !needsFile(screen)) ? screen : "open", source, baseline: source && held<Source>("baseline"), network: given.get("network") ?? "", sample: count("sample", 0, 0), part: part && PARTS.includes(part) ? part : "both", bins: count("bins", 2, 15), seed: Number(given.get("seed") ?? 0) || 0, methods: list("methods"), fitted: !fitted.length ? null : fitted[0] === "default" ? [] : fitted, curves: list("curves") };
}

export function format(state: State): string {
  const given = new URLSearchParams({ screen: state.screen });
  if (state.source) {
    given.set("file", state.source.file);
    if (state.source.kind) given.set("kind", state.source.kind);
    for (const name of TEXTS) { const value = state.source[name]; if (value) given.set(name, value); }
    for (const name of FLAGS) if (state.source[name]) given.set(name, "1");
    for (const column of state.source.by ?? []) given.append("by", column);
    if (state.source.labels_file) given.set("labels_file", state.source.labels_file.file);
    if (state.source.split) given.set("split", JSON.stringify(state.source.split));
  }
  if (state.source && state.baseline) given.set("baseline", JSON.stringify(state.baseline));
  if (state.bins !== 15) given.set("bins", String(state.bins));
  if (state.seed) given.set("seed", String(state.seed));
  if (state.methods.length) given.set("methods", state.methods.join(","));
  if (state.fitted) given.set("fitted", state.fitted.join(",") || "default");
  if (state.curves.length) given.set("curves", state.curves.join(","));
  if (state.network) given.set("network", state.network);
  if (state.sample) given.set("sample", String(state.sample));
  if (state.part !== "both") given.set("part", state.part);
  return `#${given}`;
}

/** The state, and a function that changes part of it and remembers the change in the history. */
export function useAddress(): [State, (change: Partial<State>) => void] {
  const [state, set] = useState(() => parse(location.hash));
  useEffect(() => {
    const follow = () => set(parse(location.hash));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return [state, (change) => { location.hash = format({ ...parse(location.hash), ...change }); }];
}
