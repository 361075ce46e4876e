#include "requests/decoding.h"

#include <algorithm>

namespace situ {

Want next_of(Strand& strand, std::span<const int64_t> ids, size_t prompt, size_t branch) {
  const auto begin = static_cast<size_t>(strand.length());
  Want want;
  want.strand = &strand;
  want.branch = branch;
  if (begin < prompt) {
    want.tokens = ids.subspan(begin, prompt - begin);
    want.prompt = true;
    want.whole = static_cast<int64_t>(prompt);
  } else {
    want.tokens = ids.subspan(begin, std::min(ids.size() - begin, static_cast<size_t>(strand.served->rows_of_one())));
    want.wanted = static_cast<int64_t>(want.tokens.size());
  }
  return want;
}

Result<Generation> Errand::finish(const Figures& figures) {
  if (!status_.is_ok()) return status_;
  Generation g;
  report(figures, 0, g);
  return g;
}

PromptDecoding::PromptDecoding(Served& served, Opening opening)
    : Decoding(served), opening_(std::move(opening)), prompt_rows_(prompt().size()) {}

Result<bool> PromptDecoding::open(Strand& strand, Clock::time_point until, Figures& figures) {
  const Clock::time_point start = Clock::now();
  const Result<bool> encoded = strand.encode(opening_.start, until, &figures.stages);
  figures.encode_ms += ms_since(start);
  if (encoded.is_ok() && *encoded && opening_.reuse != PrefixReuse::kOff)
    strand.take_prefix(prompt(), opening_.reuse == PrefixReuse::kAll, opening_.salt);
  return encoded;
}

Result<bool> PromptDecoding::begin_with(Strand& strand, Clock::time_point until, Figures& figures) {
  const Result<bool> opened = open(strand, until, figures);
  if (!opened.is_ok() || !*opened) return opened;
  if (!begun_) cached_ = strand.length();
  begun_ = true;
  return true;
}

void PromptDecoding::keep_prompt(const Strand& strand) const {
  if (opening_.reuse != PrefixReuse::kOff)
    strand.keep_prefix(std::span(prompt()).first(prompt().size() - 1), false, opening_.salt);
}

void PromptDecoding::complete(const Figures& figures, int64_t fed, Generation& g) const {
  if (served_.has_encoder()) g.decoder_prompt_ids = prompt();
  g.cached_tokens = cached_;
  report(figures, fed, g);
}

void report(const Figures& f, int64_t fed, Generation& g) {
  const double tokens = std::max<double>(1, static_cast<double>(g.output_ids.size())),
               counted = std::max<double>(1, static_cast<double>(fed));
  g.prefill_ms = f.prompt_ms;
  if (fed > 0) g.decode_ms_per_token = f.decode_ms / counted;
  g.bytes_copied_per_token = (f.encode.copied + f.prompt.copied + f.decode.copied) / tokens;
  g.bytes_written_per_token = fed > 0 ? (f.decode.computed + f.decode.copied) / counted
                                      : f.encode.computed + f.encode.copied + f.prompt.computed + f.prompt.copied;
  if (f.stages.empty()) return;
  const auto stage = [](const char* name, double ms, const Figures::Bytes& bytes) {
    const auto copied = static_cast<int64_t>(bytes.copied + 0.5);
    return Stage{name, ms, copied, copied + static_cast<int64_t>(bytes.computed + 0.5)};
  };
  g.encode_ms = f.encode_ms;
  g.stages = f.stages;
  g.stages.push_back(stage("prefill", f.prompt_ms, f.prompt));
  g.stages.push_back(fed > 0 ? stage("decode", f.decode_ms, f.decode) : Stage{"decode"});
}

}  // namespace situ
