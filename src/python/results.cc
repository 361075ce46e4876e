#include "python/results.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/model_handle.h"

namespace nb = nanobind;

namespace situ::python {

static nb::list to_python(const std::vector<TokenLogprob>& top) {
  nb::list list;
  for (const TokenLogprob& t : top) list.append(nb::make_tuple(t.id, t.logprob));
  return list;
}

static nb::list to_python(const std::vector<Generation::Logprobs>& logprobs) {
  nb::list list;
  for (const Generation::Logprobs& l : logprobs) list.append(nb::make_tuple(l.logprob, to_python(l.top)));
  return list;
}

static nb::list to_python(const std::vector<ToolCall>& calls) {
  nb::list list;
  for (const ToolCall& c : calls) list.append(nb::make_tuple(c.id, c.name, c.arguments_json));
  return list;
}

nb::tuple to_python(const Event& e) {
  nb::list calls;
  for (const CallPiece& c : e.calls) calls.append(nb::make_tuple(c.call, c.id, c.name, c.arguments_json, c.ended));
  return nb::make_tuple(e.id, e.text, e.logprob, to_python(e.top), e.choice, e.reasoning, calls);
}

nb::dict to_python(const Generation& g) {
  nb::list prompt_logprobs;
  for (const Generation::PromptLogprob& p : g.prompt_logprobs)
    prompt_logprobs.append(nb::make_tuple(p.id, p.logprob, p.rank, to_python(p.top)));
  nb::list answers;
  for (const Generation::Answer& a : g.answers)
    answers.append(nb::make_tuple(a.output_ids, a.text, finish_reason_name(a.finish_reason), a.score,
                                  to_python(a.logprobs), a.error, a.reasoning, to_python(a.tool_calls)));
  nb::dict d;
  d["output_ids"] = g.output_ids;
  d["text"] = g.text;
  d["reasoning"] = g.reasoning;
  d["tool_calls"] = to_python(g.tool_calls);
  d["finish_reason"] = finish_reason_name(g.finish_reason);
  d["error"] = g.finish_reason == FinishReason::kError ? error_text(g.error) : nb::none();
  d["seed"] = g.seed;
  d["logprobs"] = to_python(g.logprobs);
  d["prompt_logprobs"] = prompt_logprobs;
  d["notes"] = g.notes;
  d["answers"] = answers;
  d["perplexity"] = g.perplexity;
  d["guessed_tokens"] = g.guessed_tokens;
  d["accepted_tokens"] = g.accepted_tokens;
  d["cached_tokens"] = g.cached_tokens;
  d["decoder_prompt_ids"] = g.decoder_prompt_ids;
  nb::list stages;
  for (const Stage& s : g.stages) stages.append(nb::make_tuple(s.name, s.ms, s.bytes_copied, s.bytes_written));
  d["stages"] = stages;
  d["encode_ms"] = g.encode_ms;
  d["prefill_ms"] = g.prefill_ms;
  d["decode_ms_per_token"] = g.decode_ms_per_token;
  d["bytes_copied_per_token"] = g.bytes_copied_per_token;
  d["bytes_written_per_token"] = g.bytes_written_per_token;
  return d;
}

nb::dict to_python(const Perplexity& p) {
  nb::dict d;
  d["perplexity"] = p.value();
  d["mean_nll"] = p.mean_nll;
  d["tokens"] = p.tokens;
  d["ms"] = p.ms;
  d["bytes_copied"] = p.bytes_copied;
  return d;
}

nb::tuple to_python(const LedgerReading& l) { return nb::make_tuple(l.computed, l.copied, l.packed); }

nb::dict to_python(const ModelFacts& f) {
  nb::dict d;
  d["file"] = nb::bytes(f.file.data(), f.file.size()).attr("decode")("utf-8", "surrogateescape");
  d["isa"] = f.isa;
  d["mode"] = f.mode;
  d["threads"] = f.threads;
  d["vocabulary"] = f.vocabulary;
  d["context_length"] = f.context_length;
  d["weight_bytes"] = f.weight_bytes;
  d["computed_bytes"] = f.computed_bytes;
  d["arena_bytes"] = f.arena_bytes;
  d["state_bytes_per_token"] = f.state_bytes_per_token;
  d["slots"] = f.slots;
  d["kernel_calls_per_token"] = f.kernel_calls_per_token;
  d["one_sequence"] = f.one_sequence;
  d["load_ms"] = f.load_ms;
  d["packed_bytes"] = f.packed_bytes;
  d["mapped_packed_bytes"] = f.mapped_packed_bytes;
  return d;
}

}  // namespace situ::python
