// situ.Attention: y = softmax(scale * q k^T + bias) v with masks (attention_tile.h has the arithmetic), for the
// segments of a step: single tokens, whose keys threads share (attention_token.h), and rows, which they do
// (attention_rows.h). Threads never wait for each other.
//
// What an ISA adds to its base (-DSITU_BASE_ISA), products of pairs of integers, is for rows that are packed: tokens of
// few heads a KV head are the base's, to the bit, and the compiler's time for them is spent once.
#include "kernels/attention_rows.h"
#include "kernels/attention_token.h"

namespace situ {
#ifdef SITU_BASE_ISA
namespace SITU_BASE_ISA {
void attend_tokens(const KernelCall& call, const StepSegment* segments, int count, int thread, int threads);
}
#endif
namespace SITU_ISA {

// Those of the segments that are one token.
void attend_tokens(const KernelCall& call, const StepSegment* segments, int count, int thread, int threads) {
  Problem p{call, *static_cast<const AttentionParams*>(call.params), call.in[1], call.in[2]};
  make_problem(&p);
  p.token = true;
#ifdef SITU_BASE_ISA
  if (few_rows(p)) return SITU_BASE_ISA::attend_tokens(call, segments, count, thread, threads);
#endif
  run_tokens(&p, segments, count, thread, threads);
}

void attention(const KernelCall& call, int thread, int threads) {
  if (call.in[0].dims[0] * call.in[0].dims[1] * call.in[0].dims[2] == 0) return;
  const StepSegment whole = whole_call(call);
  const StepSegment* segments = call.segments != nullptr ? call.segments : &whole;
  const int count = call.segments != nullptr ? call.segment_count : 1;
  Problem p{call, *static_cast<const AttentionParams*>(call.params), call.in[1], call.in[2]};
  make_problem(&p);
  bool tokens = false;
  for (int s = 0; s < count; ++s) {
    p.take(segments[s]);
    tokens = tokens || p.token;
    // Threads take turns at being the first, so that heads that do not divide among them are not always one thread's
    // burden.
    if (!p.token) run_rows(p, call.scratch, (thread + s) % threads, threads);
  }
  if (tokens) attend_tokens(call, segments, count, thread, threads);
}

}  // namespace SITU_ISA
}  // namespace situ
