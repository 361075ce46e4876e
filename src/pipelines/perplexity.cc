// Model::perplexity: the text is fed in windows, and what the model says of its tokens is added up.
#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "generate/likelihood.h"
#include "pipelines/llm.h"
#include "requests/score_decoding.h"

namespace situ {

double Perplexity::value() const { return std::exp(mean_nll); }

Result<Perplexity> Model::perplexity(std::span<const int64_t> tokens, const PerplexityOptions& options) const {
  SITU_RETURN_IF_ERROR(impl_->check_generates());
  const std::string& file = impl_->file;
  const int64_t count = static_cast<int64_t>(tokens.size());
  if (count < 2)
    return Status::error(Code::kInvalidArgument,
                         file + ": the perplexity of " + std::to_string(count) +
                             " tokens; at least 2 are needed, since the first has nothing before it");
  SITU_RETURN_IF_ERROR(impl_->check_ids(tokens));
  if (options.context < 0 || options.context > impl_->context_length)
    return Status::error(Code::kInvalidArgument, file + ": a context of " + std::to_string(options.context) +
                                                     " tokens; the model's is " +
                                                     std::to_string(impl_->context_length));
  const int64_t context = std::min(count, options.context > 0 ? options.context : impl_->context_length);
  const int64_t stride = options.stride > 0 ? options.stride : std::max<int64_t>(1, context / 2);
  if (options.stride < 0 || context < 2 || stride >= std::max<int64_t>(2, context))
    return Status::error(Code::kInvalidArgument, file + ": windows of " + std::to_string(context) + " tokens, " +
                                                     std::to_string(options.stride) +
                                                     " apart; they are at least 2 long, and overlap");
  const Clock::time_point start = Clock::now();
  std::vector<ScoreDecoding::Window> windows;
  for (int64_t begin = 0, scored = 1; scored < count; begin += stride) {
    const int64_t end = std::min(begin + context, count);
    if (scored < end) windows.push_back({begin, scored, end});
    scored = std::max(scored, end);
  }
  LikelihoodMeter meter;
  const Result<Generation> done = impl_->wait_for(std::make_unique<ScoreDecoding>(
      Strand(*impl_), std::vector<int64_t>(tokens.begin(), tokens.end()), std::move(windows), false,
      [&](int64_t token, std::span<const float> logits) { meter.add(logits, tokens[static_cast<size_t>(token)]); }));
  if (!done.is_ok()) return done.status();
  const LikelihoodMeter::Sum& sum = meter.sum();
  if (sum.not_a_number >= 0)
    return Status::error(file + ": logits of id " + std::to_string(sum.not_a_number) + " are not a number");
  if (sum.nothing_left >= 0)
    return Status::error(file + ": no token can be chosen after " + std::to_string(sum.nothing_left + 1) +
                         " tokens of the text: every logit is -infinity");
  Perplexity p;
  p.tokens = sum.tokens;
  p.mean_nll = sum.nll / static_cast<double>(sum.tokens);
  p.ms = ms_since(start);
  p.bytes_copied = static_cast<int64_t>(done->bytes_copied_per_token);
  return p;
}

}  // namespace situ
