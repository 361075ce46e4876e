#include "runtime/naive_engine.h"

#include <algorithm>

#include "base/assign.h"
#include "base/reasons.h"

namespace situ {

Result<std::unique_ptr<NaiveEngine>> NaiveEngine::create(const ModelFiles& files, const EngineOptions& options) {
  return or_error("to prepare the model", [&] { return make(files, options); });
}

Result<std::unique_ptr<NaiveEngine>> NaiveEngine::make(const ModelFiles& files, const EngineOptions& options) {
  std::unique_ptr<NaiveEngine> e(new NaiveEngine());
  e->pool_ = options.pool;
  e->evaluator_ = std::make_unique<Evaluator>(*e->pool_);
  e->files_ = &files;
  e->options_ = options;
  ThreadPool one(1);
  Evaluator evaluator(one, Evaluator::kMaxProbeBytes);
  SITU_TAKE(module, bind_module(module_files(files, {}), evaluator));
  e->module_ = std::move(module);
  const Module& m = e->module_;
  const Result<std::optional<FixedWindow>> window = find_fixed_window(m.literal_decode, options.names);
  if (!m.has_encoder() && window.is_ok() && *window) {
    SITU_TAKE(loop, FixedWindowLoop::create(m.literal_decode, **window, options.names, evaluator));
    e->fixed_ = std::move(loop);
    return e;
  }
  if (files.first) {  // both are run as they are; what they compute must fit together
    SITU_TAKE(says, compare_first_call(m, options, evaluator));
    if (says == FirstCall::kOther) return not_of_one_decoder(files);
  }
  // A graph for any step; else one for first calls and one for single tokens.
  Result<Compiled> decode = compile_literally(m.literal_decode, m, options, Phase::kAny);
  const Status any = decode.status();
  if (!any.is_ok() && holds_for_any_step(any)) return any;
  std::optional<Graph> first_graph = m.literal_first;
  const auto one_token = [&] {
    return !first_graph && decode.is_ok() && declares_one_token(m.literal_decode, options.names, *decode);
  };
  if (!decode.is_ok() || one_token()) {
    decode = compile_literally(m.literal_decode, m, options, Phase::kDecode);
    if (!decode.is_ok()) return any.is_ok() ? decode.status() : with_fixed_tokens(m.literal_decode, options, any);
    e->one_token_ = one_token();
    if (!first_graph && !e->one_token_) first_graph = m.literal_decode;
  }
  e->decode_ = std::move(*decode);
  e->switches_ = Switches(e->decode_.binding, e->decode_.binding);
  if (!files.media.empty()) {
    e->cut_ = cut_at_embeddings(e->decode_);
    if (first_graph) e->cut_ = Status::error("first calls are computed by a graph of their own");
  }
  if (!first_graph) return e;
  Result<Compiled> first = compile_literally(*first_graph, m, options, Phase::kFirst);
  if (!first.is_ok() && !m.literal_first && steps_by_token(e->decode_.binding)) {
    e->one_token_ = true;
    return e;
  }
  if (!first.is_ok()) return any.is_ok() ? first.status() : with_fixed_tokens(m.literal_decode, options, any);
  SITU_RETURN_IF_ERROR(same_switches(first->binding, e->decode_.binding));
  e->first_ = std::move(*first);
  e->switches_ = Switches(e->first_->binding, e->decode_.binding);
  return e;
}

bool NaiveEngine::encoder_takes_ids() const { return module_.encoder && situ::encoder_takes_ids(*module_.encoder); }

Status NaiveEngine::encode(NaiveSequence& sequence, const EncoderInput& input) {
  if (!files_->encoder) return Status::error(Code::kInvalidArgument, "the model has no encoder");
  SITU_RETURN_IF_ERROR(check_encoder_input(files_->encoder->graph, input, source_length_of(options_)));
  return or_error("for a source of " + std::to_string(input.ids.size()) + " tokens",
                  [&] { return encode_source(sequence, input); });
}

Status NaiveEngine::encode_source(NaiveSequence& sequence, const EncoderInput& input) {
  if (!encoder_ || extents_ != input.extents()) {
    ThreadPool one(1);
    Evaluator evaluator(one, Evaluator::kMaxProbeBytes);
    Result<Module> module = bind_module(module_files(*files_, input.extents()), evaluator);
    if (!module.is_ok()) return module.status().or_code(Code::kUnsupportedModel);
    GraphUse use{Phase::kFirst, true, {}, {}};
    for (const auto& [name, tensor] : input.tensors) use.fed.insert(name);
    const Graph& graph = *module->encoder;
    for (const ValueId v : graph.outputs) {
      const std::string& name = graph.values[v].name;
      std::string state = name == module->encoder_output ? kHidden : "";
      for (const SourceRows& s : module->sources)
        if (state.empty() && state_suffix(name) == s.name) state = s.name;
      if (!state.empty()) use.sources.push_back({state, "", name, 1});
    }
    const std::optional<Dim> length = masked_length(graph);
    encoder_length_ = length && length->is_const() ? length->value() : 0;
    Result<Compiled> encoder = compile(graph, options_, nullptr, use);
    if (!encoder.is_ok()) return encoder.status().or_code(Code::kUnsupportedModel).with_context("encoder");
    encoder_ = std::move(*encoder);
    extents_ = input.extents();
  }
  if (encoder_takes_ids()) SITU_RETURN_IF_ERROR(check_encoder_input(files_->encoder->graph, input, encoder_->context));
  SITU_TAKE(made, run_literally(*encoder_, {input.ids, 0, 1, nullptr, &input.tensors}, *evaluator_));
  sequence = {};
  sequence.states = std::move(made.states);
  for (const SourceRows& s : module_.sources)
    if (const auto held = sequence.states.find(s.name); held != sequence.states.end())
      sequence.source_rows = held->second.dims()[static_cast<size_t>(s.axis)];
  if (const auto hidden = sequence.states.find(kHidden); hidden != sequence.states.end())
    sequence.source_rows = hidden->second.dims()[1];
  sequence.source_length = encoder_length_;
  return Status::ok();
}

Result<Tensor> NaiveEngine::encoder_rows(const MediaPlaces::Encoder& places, int64_t width) {
  const MediaEncoder& encoder = files_->media[places.index];
  ThreadPool one(1);
  Evaluator evaluator(one);
  Result<MediaGraph> graph = MediaGraph::bind(encoder, places.arrays, width, evaluator);
  if (!graph.is_ok()) return graph.status().or_code(Code::kUnsupportedModel);
  Result<Compiled> compiled = graph->compile(options_, nullptr);
  if (!compiled.is_ok()) return compiled.status().or_code(Code::kUnsupportedModel).with_context(encoder.name);
  Result<LiteralResult> made = run_literally(*compiled, {{}, 0, 1, nullptr, &places.arrays}, *evaluator_);
  if (!made.is_ok()) return made.status().with_context(encoder.name);
  const Tensor rows = made->rows;
  if (rows.type() != cut_->lookup.graph.values[cut_->lookup.binding.rows].info.type || rows.rank() < 1 ||
      rows.dims().back() != width)
    return Status::error(Code::kUnsupportedModel, encoder.name + ": its rows are not as embeddings are");
  SITU_RETURN_IF_ERROR(check_media_rows(encoder, places, rows.count() / width));
  return rows.reshaped({rows.count() / width, width});
}

Status NaiveEngine::encode(NaiveSequence& sequence, std::span<const int64_t> prompt, const EncoderInput& input,
                           std::vector<Stage>* stages) {
  if (!cut_.is_ok()) return cut_.status().or_code(Code::kUnsupportedModel);
  return or_error("to run the encoder", [&]() -> Status {
    StageClock clock(ledger());
    SITU_TAKE(places, media_places(*files_, prompt, input));
    const auto rows = std::make_shared<MediaRows>();
    rows->base = rows->first = sequence.length;
    rows->ids.assign(prompt.begin(), prompt.end());
    rows->count = static_cast<int64_t>(prompt.size());
    SITU_RETURN_IF_ERROR(set_media_positions(
        *files_, cut_->decoder, places, {prompt, rows->base, sequence.media.first_position(rows->base)}, rows.get()));
    const int64_t width = cut_->lookup.graph.values[cut_->lookup.binding.rows].info.shape.back().value();
    std::vector<Tensor> encoded;
    for (const MediaPlaces::Encoder& e : places.encoders) {
      SITU_TAKE(made, encoder_rows(e, width));
      encoded.push_back(std::move(made));
      clock.end(stage_name(files_->media[e.index]), stages);
    }
    SITU_TAKE(looked_up, run_literally(cut_->lookup, {prompt}, *evaluator_));
    rows->rows = looked_up.rows.reshaped({rows->count, width});
    for (size_t i = 0; i < encoded.size(); ++i) {
      const std::vector<int64_t>& tokens = places.encoders[i].tokens;
      for (size_t r = 0; r < tokens.size(); ++r) {
        View dst = rows->rows.view(), src = encoded[i].view();
        dst.dims[0] = src.dims[0] = 1;
        dst.data += tokens[r] * rows->row_bytes();
        src.data += static_cast<int64_t>(r) * rows->row_bytes();
        move_bytes(dst, src, ledger());
      }
    }
    clock.end("embed", stages);
    sequence.media.add(rows);
    return Status::ok();
  });
}

Status NaiveEngine::step(NaiveSequence& sequence, std::span<const int64_t> tokens, float* to) {
  if (tokens.empty()) return Status::error(Code::kInvalidArgument, "a step needs at least one token");
  if (has_encoder() && sequence.source_rows == 0)
    return Status::error(Code::kInvalidArgument, "the sequence has no source: the encoder was not run for it");
  const std::string taken =
      "for a step of " + std::to_string(tokens.size()) + " tokens after " + std::to_string(sequence.length);
  return or_error(taken, [&]() -> Status {
    NaiveSequence next = sequence;
    SITU_RETURN_IF_ERROR(feed_by_length(next, tokens));
    sequence = std::move(next);
    logits_ = to ? std::span<const float>(to, converted_.size()) : converted_;
    if (to)
      move_bytes(row_view(to, static_cast<int64_t>(converted_.size())),
                 row_view(converted_.data(), static_cast<int64_t>(converted_.size())), ledger());
    return Status::ok();
  });
}

// Where the graph reads other tables from this length on, a host feeds the whole text again, without past.
Status NaiveEngine::feed_by_length(NaiveSequence& sequence, std::span<const int64_t> tokens) {
  if (!switches_.any()) return feed(sequence, tokens);
  std::vector<int64_t> all = sequence.tokens;
  all.insert(all.end(), tokens.begin(), tokens.end());
  const int64_t length = static_cast<int64_t>(all.size());
  if (sequence.length == 0 || switches_.stage(sequence.length) == switches_.stage(length)) {
    SITU_RETURN_IF_ERROR(feed(sequence, tokens));
  } else {
    NaiveSequence anew = without_past(sequence);
    SITU_RETURN_IF_ERROR(feed(anew, all));
    sequence = std::move(anew);
  }
  sequence.tokens = std::move(all);
  return Status::ok();
}

// The source stays.
NaiveSequence NaiveEngine::without_past(const NaiveSequence& sequence) const {
  NaiveSequence anew;
  anew.source_rows = sequence.source_rows;
  anew.source_length = sequence.source_length;
  anew.media = sequence.media;
  for (const auto& [name, state] : sequence.states) {
    const auto source = [&, &n = name](const StatePair& s) { return s.name == n && s.rule == StateRule::kSource; };
    const std::vector<StatePair>& states = decode_.binding.states;
    if (std::any_of(states.begin(), states.end(), source)) anew.states[name] = state;
  }
  return anew;
}

// The first call, where the export has one, then cached ones; of single tokens, where those may hold for them alone.
// After an error the sequence is in the middle of the step.
Status NaiveEngine::feed(NaiveSequence& sequence, std::span<const int64_t> tokens) {
  if (fixed_) {
    SITU_TAKE(logits, fixed_->step(sequence.window, tokens, *evaluator_));
    sequence.length = sequence.window.length;
    return keep_logits(logits);
  }
  if (first_ && sequence.length == 0) return run(*first_, sequence, tokens);
  const bool one_by_one = first_ || one_token_;
  if (!one_by_one) sequence.media.match(sequence.length, tokens);
  // In parts the graph would have the tables of shorter sequences.
  if (!one_by_one && switches_.any() && sequence.media.border(sequence.length) < std::ssize(tokens)) {
    SITU_TAKE(rows, embeddings_of(sequence, tokens));
    return run(cut_->decoder, sequence, tokens, rows.view().data);
  }
  while (!tokens.empty()) {
    int64_t most = one_by_one ? 1 : sequence.media.border(sequence.length);
    // As many at once as there are places behind the last one: the rows of a step must not be written over each other.
    if (const int64_t circle = decode_.binding.circle; circle > 0)
      most = std::min(most, std::max<int64_t>(1, circle - sequence.length));
    const bool held = !one_by_one && sequence.media.holds(sequence.length);
    const size_t count = static_cast<size_t>(std::min(most, std::ssize(tokens)));
    SITU_RETURN_IF_ERROR(run(held ? cut_->decoder : decode_, sequence, tokens.first(count)));
    tokens = tokens.subspan(count);
  }
  return Status::ok();
}

// [tokens, width]: rows that encoders made, and those of the lookup.
Result<Tensor> NaiveEngine::embeddings_of(const NaiveSequence& sequence, std::span<const int64_t> tokens) {
  const ValueInfo& info = cut_->lookup.graph.values[cut_->lookup.binding.rows].info;
  const int64_t count = static_cast<int64_t>(tokens.size()), width = info.shape.back().value();
  Tensor rows = Tensor::allocate(info.type, {count, width});
  for (int64_t begin = 0, part = 0; begin < count; begin += part) {
    const int64_t token = sequence.length + begin;
    part = std::min(sequence.media.border(token), count - begin);
    Tensor made;
    if (std::byte* held = sequence.media.row(token)) {
      made = Tensor::borrow(info.type, {part, width}, held, nullptr);
    } else {
      const Result<LiteralResult> looked_up = run_literally(
          cut_->lookup, {tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(part))}, *evaluator_);
      if (!looked_up.is_ok()) return looked_up.status();
      made = looked_up->rows.reshaped({part, width});
    }
    View to = rows.view();
    to.dims[0] = part;
    to.data += begin * width * dtype_bytes(info.type);
    move_bytes(to, made.view(), ledger());
  }
  return rows;
}

Status NaiveEngine::run(const Compiled& compiled, NaiveSequence& sequence, std::span<const int64_t> tokens,
                        std::byte* rows) {
  LiteralStep step{tokens,           sequence.length, std::max<int64_t>(1, sequence.source_rows),
                   &sequence.states, nullptr,         sequence.source_length};
  step.first_position = sequence.media.first_position(sequence.length);
  step.positions = sequence.media.positions(sequence.length, &step.position_stride);
  std::map<std::string, Tensor> embeddings;
  if (cut_.is_ok() && &compiled == &cut_->decoder) {
    const Value& x = compiled.graph.values[compiled.embeddings];
    embeddings[x.name] = Tensor::borrow(x.info.type, {1, static_cast<int64_t>(tokens.size()), x.info.shape[2].value()},
                                        rows ? rows : sequence.media.row(sequence.length), nullptr);
    step.fed = &embeddings;
  }
  SITU_TAKE(made, run_literally(compiled, step, *evaluator_));
  SITU_RETURN_IF_ERROR(keep_logits(made.logits));
  made.states.merge(sequence.states);  // what this call does not give stays
  sequence.states.swap(made.states);
  sequence.length += static_cast<int64_t>(tokens.size());
  return Status::ok();
}

Status NaiveEngine::keep_logits(const Tensor& t) {
  if (t.rank() < 1 || t.count() == 0) return Status::error("the logits are empty");
  const int64_t width = t.dims().back();
  const Tensor row =
      Tensor::borrow(t.type(), {width}, t.view().data + (t.count() - width) * dtype_bytes(t.type()), t.owner());
  const std::vector<double> last = row.to_f64();
  converted_.assign(last.begin(), last.end());
  return Status::ok();
}

}  // namespace situ
