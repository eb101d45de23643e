// SPDX-License-Identifier: Apache-2.0

// Reads a trace of pipetwin with the engine of Chrome's DevTools and prints what it found on each rank and lane.
//
//     npm install @paulirish/trace_engine && node tools/read_trace.mjs runs/1/measured.trace.json
import {analyzeTrace} from '@paulirish/trace_engine/analyze-trace.mjs';

const {parsedTrace} = await analyzeTrace(process.argv[2]);
const renderer = (parsedTrace.data ?? parsedTrace).Renderer;
for (const [rank, process] of renderer.processes) {
  for (const [, lane] of process.threads) {
    console.log(`rank ${rank}  ${lane.name}  ${lane.entries.length} spans`);
  }
}
