/** What happens when a reader picks a bin or a class of a chart: nothing in a report; in the studio its samples are shown. */
import { createContext } from "preact";

export interface Picks { bin: (low: number, high: number, of: string) => void; /* of: the class whose probability it is */ predicted: (name: string) => void; slice: (column: string, value: string) => void }
export const Pick = createContext<Picks | null>(null);
