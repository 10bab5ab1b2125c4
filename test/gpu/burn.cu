// SPDX-License-Identifier: Apache-2.0
//
// Work for a real GPU: burn SECONDS MICROSECONDS [--graph] [--request MS] launches kernels that fill the GPU for about that long,
// eight ahead, and prints one line of JSON like the program pace of the interceptor's tests: kernels that completed, those of
// each second, the longest time between two that completed, and with --request how long a kernel every MS milliseconds waited
// beyond its own time. All runs do the same work: burn calibrate FILE measures it once, alone on the GPU, and the variable
// BURN_TABLE names the file. Waits spin, as those of most programs do: one that sleeps for each of eight short kernels is bound
// by how fast the machine wakes it.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;

static const int kBlocks = 1056, kThreads = 256, kDepth = 8, kInGraph = 4;

static void must(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return;
  printf("{\"error\":%d,\"done\":0,\"perSecond\":[]}\n", (int)error);
  fprintf(stderr, "burn: %s: %s\n", what, cudaGetErrorString(error));
  exit(3);
}

// The same grid for all, so that nobody does less work where fewer multiprocessors are told.
__global__ void work(float *out, long rounds) {
  float a = threadIdx.x * 1e-6f;
  for (long i = 0; i < rounds; i++) a = fmaf(a, 1.000001f, 1e-7f);
  if (a == 123.456f) *out = a;
}

static double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

static float timed(float *out, long rounds) {
  cudaEvent_t start, end;
  float ms;
  must(cudaEventCreate(&start), "event");
  must(cudaEventCreate(&end), "event");
  must(cudaEventRecord(start), "record");
  work<<<kBlocks, kThreads>>>(out, rounds);
  must(cudaEventRecord(end), "record");
  must(cudaEventSynchronize(end), "wait");
  must(cudaEventElapsedTime(&ms, start, end), "time");
  return ms * 1000;
}

// Rounds a microsecond and what a kernel costs besides, from a long and a short one.
static int calibrate(float *out, const char *file) {
  const long few = 20000, many = 2000000;
  float a = 1e30f, b = 1e30f;
  for (int i = 0; i < 30; i++) a = std::min(a, timed(out, few));
  for (int i = 0; i < 10; i++) b = std::min(b, timed(out, many));
  double slope = (double)(many - few) / (b - a);
  FILE *f = fopen(file, "w");
  if (f == NULL) return 4;
  fprintf(f, "%.6f %.6f\n", slope, std::max(0.0, a - few / slope));
  return fclose(f);
}

static long rounds_for(double us) {
  double slope, fixed;
  const char *name = getenv("BURN_TABLE");
  FILE *f = name == NULL ? NULL : fopen(name, "r");
  if (f == NULL || fscanf(f, "%lf %lf", &slope, &fixed) != 2) {
    fprintf(stderr, "burn: BURN_TABLE names no table\n");
    exit(2);
  }
  fclose(f);
  return std::max(1L, (long)((us - fixed) * slope));
}

struct Result {
  long done = 0;
  double last = 0, gap = 0;
  std::vector<long> seconds;
  std::vector<long> waits;
};

static void count(Result &r, Clock::time_point start, long kernels) {
  double now = since(start);
  size_t second = (size_t)now;
  r.done += kernels;
  r.gap = std::max(r.gap, now - r.last);
  r.last = now;
  if (second < r.seconds.size()) r.seconds[second] += kernels;
}

static cudaGraphExec_t captured(cudaStream_t stream, float *out, long rounds) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < kInGraph; i++) work<<<kBlocks, kThreads, 0, stream>>>(out, rounds);
  must(cudaStreamEndCapture(stream, &graph), "capture");
  must(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  return exec;
}

static void burn(Result &r, double seconds, cudaStream_t stream, float *out, long rounds, bool graph) {
  cudaEvent_t events[kDepth];
  cudaGraphExec_t exec = graph ? captured(stream, out, rounds) : NULL;
  for (auto &e : events) must(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "event");
  auto start = Clock::now();
  for (long i = 0; since(start) < seconds; i++) {
    if (i >= kDepth) {
      must(cudaEventSynchronize(events[i % kDepth]), "wait");
      count(r, start, graph ? kInGraph : 1);
    }
    if (graph) must(cudaGraphLaunch(exec, stream), "launch");
    else work<<<kBlocks, kThreads, 0, stream>>>(out, rounds);
    must(cudaEventRecord(events[i % kDepth], stream), "record");
  }
}

static void requests(Result &r, double seconds, double every_ms, double us, cudaStream_t stream, float *out, long rounds) {
  auto start = Clock::now(), due = start;
  auto every = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(every_ms));
  while (since(start) < seconds) {
    std::this_thread::sleep_until(due += every);
    auto before = Clock::now();
    work<<<kBlocks, kThreads, 0, stream>>>(out, rounds);
    must(cudaStreamSynchronize(stream), "wait");
    r.waits.push_back(std::max(0L, (long)(since(before) * 1e6 - us)));
    count(r, start, 1);
    due = std::max(due, Clock::now() - every);
  }
}

static long part(const std::vector<long> &sorted, double which) {
  return sorted.empty() ? 0 : sorted[(size_t)((double)(sorted.size() - 1) * which)];
}

int main(int argc, char **argv) {
  float *out;
  if (argc < 3) return 2;
  must(cudaMalloc(&out, 4), "memory");
  if (strcmp(argv[1], "calibrate") == 0) return calibrate(out, argv[2]);
  double seconds = atof(argv[1]), us = atof(argv[2]), request_ms = 0;
  bool graph = false;
  for (int i = 3; i < argc; i++) {
    if (strcmp(argv[i], "--graph") == 0) graph = true;
    if (strcmp(argv[i], "--request") == 0 && i + 1 < argc) request_ms = atof(argv[++i]);
  }
  cudaStream_t stream;
  Result r;
  long rounds = rounds_for(us);
  r.seconds.resize((size_t)seconds);
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  if (request_ms > 0) requests(r, seconds, request_ms, us, stream, out, rounds);
  else burn(r, seconds, stream, out, rounds, graph);
  must(cudaDeviceSynchronize(), "end");
  std::sort(r.waits.begin(), r.waits.end());
  printf("{\"error\":0,\"done\":%ld,\"perSecond\":[", r.done);
  for (size_t i = 0; i < r.seconds.size(); i++) printf("%s%ld", i > 0 ? "," : "", r.seconds[i]);
  printf("],\"requests\":%zu,\"waitP50Us\":%ld,\"waitP90Us\":%ld,\"waitP99Us\":%ld,\"waitMaxUs\":%ld,\"longestGapUs\":%ld}\n",
         r.waits.size(), part(r.waits, 0.5), part(r.waits, 0.9), part(r.waits, 0.99), part(r.waits, 1), (long)(r.gap * 1e6));
  return 0;
}
