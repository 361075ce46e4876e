// Model::perplexity: the text is fed in windows, and a side thread adds up how likely its tokens were while the next
// piece is computed.
#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "pipelines/llm.h"

namespace situ {

double Perplexity::value() const { return std::exp(mean_nll); }

Result<Perplexity> Model::perplexity(std::span<const int64_t> tokens, const PerplexityOptions& options) {
  SITU_RETURN_IF_ERROR(impl_->check_generates());
  const std::string file = impl_->folder.model_file.string();
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
  const Ledger before = impl_->ledger();
  LikelihoodBesideSteps likelihood(*impl_);
  int64_t scored = 1;  // tokens before this one are
  for (int64_t begin = 0; scored < count; begin += stride) {
    const int64_t end = std::min(begin + context, count);
    Result<Session> session = new_session();
    if (!session.is_ok()) return session.status();
    // What comes before token `scored`, then one token less than is scored: the last is not fed.
    const auto feed = [&](int64_t from, int64_t to, int64_t wanted) {
      const Impl::Feed all{&impl_of(*session),
                           tokens.subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)), wanted, false};
      return impl_->step_all({&all, 1}, [&](size_t, std::span<const float> logits) {
        likelihood.meter().add(logits, tokens[static_cast<size_t>(scored++)]);
        return Status::ok();
      });
    };
    if (scored - 1 > begin) SITU_RETURN_IF_ERROR(feed(begin, scored - 1, 0));
    while (scored < end) {
      const int64_t piece = std::min(end - scored, impl_->batch());
      SITU_RETURN_IF_ERROR(feed(scored - 1, scored - 1 + piece, piece));
    }
  }
  const LikelihoodMeter::Sum sum = likelihood.meter().sum();
  if (sum.not_a_number >= 0)
    return Status::error(file + ": logits of id " + std::to_string(sum.not_a_number) + " are not a number");
  Perplexity p;
  p.tokens = sum.tokens;
  p.mean_nll = sum.nll / static_cast<double>(sum.tokens);
  p.ms = ms_since(start);
  p.bytes_copied = impl_->ledger().copied - before.copied;
  return p;
}

}  // namespace situ
