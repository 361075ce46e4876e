#include "runtime/media_writer.h"

#include <algorithm>

#include "base/assign.h"
#include "base/ledger.h"
#include "runtime/media_positions.h"

namespace situ {
namespace {

// Consecutive tokens.
struct Stretch {
  int64_t first = 0, count = 0;
};
template <typename In>
std::vector<Stretch> stretches(int64_t begin, int64_t end, In in) {
  std::vector<Stretch> found;
  for (int64_t t = begin; t < end; ++t) {
    if (!in(t)) continue;
    if (found.empty() || found.back().first + found.back().count != t) found.push_back({t, 0});
    ++found.back().count;
  }
  return found;
}

const Tensor* grids_of(const MediaPlaces::Encoder& places) {
  for (const auto& [name, array] : places.arrays)
    if (array.type() == DType::kI64 && array.rank() == 2 && array.dims()[1] == 3) return &array;
  return nullptr;
}

bool three_rows(const Compiled& decoder) {
  for (const auto& [v, role] : decoder.binding.inputs)
    if (role == InputRole::kPositions)
      if (const Shape& s = decoder.graph.values[v].info.shape; s.size() == 3 && s[0] != Dim(1)) return true;
  return false;
}

}  // namespace

Result<MediaPlaces> media_places(const ModelFiles& files, std::span<const int64_t> ids, const EncoderInput& input) {
  MediaPlaces all;
  std::map<std::string, int> taken;
  std::string inputs;
  for (size_t e = 0; e < files.media.size(); ++e) {
    const MediaEncoder& encoder = files.media[e];
    const Graph& graph = encoder.model.graph;
    MediaPlaces::Encoder places{e, {}, {}};
    for (const ValueId v : graph.inputs) {
      const Value& value = graph.values[v];
      inputs += (inputs.empty() ? "" : ", ") + value.name;
      auto given = input.tensors.find(stage_name(encoder) + "." + value.name);
      if (given == input.tensors.end()) given = input.tensors.find(value.name);
      if (given == input.tensors.end()) continue;
      ++taken[given->first];
      SITU_RETURN_IF_ERROR(check_encoder_array(graph, value, given->second, false).with_context(encoder.name));
      places.arrays.emplace(value.name, given->second);
    }
    for (size_t i = 0; i < ids.size() && encoder.token >= 0; ++i)
      if (ids[i] == encoder.token) places.tokens.push_back(static_cast<int64_t>(i));
    const auto wrong = [&](const std::string& what) {
      return Status::error(Code::kInvalidArgument, encoder.name + ": " + what);
    };
    if (places.arrays.empty() && places.tokens.empty()) continue;
    if (encoder.token < 0)
      return wrong("config.json does not say which token id its rows stand for (image_token_id, audio_token_id)");
    const std::string count = std::to_string(places.tokens.size()) + " tokens with id " + std::to_string(encoder.token);
    if (places.arrays.empty())
      return wrong("the prompt has " + count + ", which stand for its rows, and no array is given for it");
    for (const ValueId v : graph.inputs)
      if (const Value& value = graph.values[v]; !places.arrays.count(value.name))
        return wrong("input '" + value.name + "' " + dtype_name(value.info.type) +
                     shape_str(value.info.shape, &graph.symbol_names()) + " is not given");
    if (places.tokens.empty())
      return wrong("an array is given for it, and the prompt has no token with id " + std::to_string(encoder.token) +
                   ", which would stand for its rows");
    all.encoders.push_back(std::move(places));
  }
  for (const auto& [name, tensor] : input.tensors) {
    if (!taken.count(name))
      return Status::error(Code::kInvalidArgument, "no encoder has an input '" + name + "'; there are: " + inputs);
    if (taken[name] > 1)
      return Status::error(Code::kInvalidArgument,
                           "several encoders have an input '" + name + "': which is meant cannot be said");
  }
  return all;
}

Status check_media_rows(const MediaEncoder& encoder, const MediaPlaces::Encoder& places, int64_t rows) {
  if (rows == static_cast<int64_t>(places.tokens.size())) return Status::ok();
  return Status::error(Code::kInvalidArgument, encoder.name + ": it makes " + std::to_string(rows) +
                                                   " rows of the arrays, and the prompt has " +
                                                   std::to_string(places.tokens.size()) + " tokens with id " +
                                                   std::to_string(encoder.token) + ", one for each was expected");
}

Status set_media_positions(const ModelFiles& files, const Compiled& decoder, const MediaPlaces& places,
                           const MediaPrompt& prompt, MediaRows* rows) {
  if (!three_rows(decoder)) return Status::ok();
  for (const auto& [v, role] : decoder.binding.inputs)
    if (role == InputRole::kPositions && decoder.graph.values[v].info.shape.size() == 3 &&
        decoder.graph.values[v].info.shape[0] != Dim(3))
      return Status::error(Code::kUnsupportedModel, "positions of " + decoder.graph.values[v].info.shape[0].str() +
                                                        " rows are known of text alone");
  if (places.encoders.size() != 1 || !grids_of(places.encoders[0]) || files.spatial_merge < 1)
    return Status::error(Code::kUnsupportedModel,
                         "the decoder takes positions of three rows, which are known of one kind of pictures with a "
                         "grid [pictures, 3] and a spatial_merge_size in config.json");
  const std::vector<int64_t> grids = grids_of(places.encoders[0])->to_i64();
  const PictureTokens tokens{files.media[places.encoders[0].index].token, files.vision_start};
  SITU_TAKE(positions, media_positions(prompt.ids, prompt.first_position, tokens, grids, files.spatial_merge));
  rows->positions = std::move(positions);
  rows->next_position = 1 + *std::max_element(rows->positions.begin(), rows->positions.end());
  return Status::ok();
}

std::string stage_name(const MediaEncoder& encoder) { return encoder.name.substr(0, encoder.name.rfind(".onnx")); }

Result<std::unique_ptr<MediaWriter>> MediaWriter::create(const ModelFiles& files, const EngineOptions& options,
                                                         const CutGraphs& cut, int64_t chunk, bool whole) {
  std::unique_ptr<MediaWriter> w(new MediaWriter(files, options, cut));
  w->chunk_ = chunk;
  w->whole_ = whole;
  if (!fill_random(w->secret_)) return Status::error(Code::kInternal, "the system has no random numbers");
  SITU_RETURN_IF_ERROR(
      assign(&w->lookup_plan_, make_plan(cut.lookup.graph, cut.lookup.binding, {chunk, context_of(options), 1, 1}))
          .with_context(files.lookup_name));
#ifndef NDEBUG
  SITU_RETURN_IF_ERROR(
      verify_plan(cut.lookup.graph, cut.lookup.binding, w->lookup_plan_, {std::min<int64_t>(chunk, 3)}));
#endif
  return w;
}

Status MediaWriter::place(const Regions& regions, EncoderRoom& room, ProgramBuilder& builder) {
  room_ = &room;
  builder_ = &builder;
  SITU_RETURN_IF_ERROR(lookup_io_.reserve(lookup_plan_, files_.lookup_name));
  Regions own = regions;
  own.io = lookup_io_.memory.data();
  SITU_RETURN_IF_ERROR(assign(&lookup_, Program::create(cut_.lookup.graph, cut_.lookup.binding, lookup_plan_,
                                                        cut_.lookup.order, own, *room.executor))
                           .with_context(files_.lookup_name));
  return Status::ok();
}

namespace {

// [rows, width]
Dim rows_in(const Compiled& c) { return c.graph.values[c.binding.rows].info.shape[0]; }

}  // namespace

// The program for these arrays, on the shelf.
Result<std::shared_ptr<MediaWriter::Entry>> MediaWriter::build(const MediaPlaces::Encoder& places,
                                                               ProgramBuilder::Build& build, ThreadPool& pool) {
  const MediaEncoder& encoder = files_.media[places.index];
  ThreadPool one(1);
  Evaluator evaluator(one);
  Result<MediaGraph> graph = [&]() -> Result<MediaGraph> {
    const std::lock_guard held(build.reading);
    if (build.abandoned) return Status::error(Code::kInterrupted, "nobody waits for it");
    return MediaGraph::bind(encoder, places.arrays, width(), evaluator);
  }();
  if (!graph.is_ok()) return graph.status().or_code(Code::kUnsupportedModel);
  if (std::shared_ptr<Entry> found =
          shelf_.find([&](const Entry& e) { return e.encoder == places.index && e.key == graph->key(); }))
    return found;
  // Saved for itself: what is packed of it now, long after the start, is not packed again for pictures of another size.
  const std::vector<PackSource> sources = pack_sources(encoder.model);
  PackCache cache(pool, sources, {options_.pack_cache ? pack_cache_folder() : std::filesystem::path()});
  PackStore packs(pool, &cache);
  for (const PackSource& source : sources) packs.add_file(source.owner);
  auto entry = std::make_shared<Entry>();
  entry->encoder = places.index;
  entry->key = graph->key();
  const MediaGraph literal = *graph;
  Result<std::vector<int64_t>> order = graph->take_order(evaluator);
  if (!order.is_ok()) return order.status().or_code(Code::kUnsupportedModel).with_context(encoder.name);
  entry->order = std::move(*order);
  Result<Compiled> compiled = graph->compile(options_, &packs);
  if (compiled.is_ok() && !entry->order.empty() && rows_in(*compiled) != Dim(std::ssize(entry->order))) {
    entry->order.clear();  // some of the rows are chosen, not all of them ordered
    compiled = literal.compile(options_, &packs);
  }
  if (!compiled.is_ok()) return compiled.status().or_code(Code::kUnsupportedModel).with_context(encoder.name);
  if (std::optional<PackSave> save = cache.finish()) saver_.save(std::move(*save));
  entry->compiled = std::move(*compiled);
  const Compiled& c = entry->compiled;
  const Value& made = c.graph.values[c.binding.rows];
  const ValueInfo& wanted = rows_info();
  if (made.info.type != wanted.type || !shape_is_const(made.info.shape) || made.info.shape.back() != Dim(width()))
    return Status::error(Code::kUnsupportedModel, encoder.name + ": its rows are " + dtype_name(made.info.type) +
                                                      shape_str(made.info.shape, &c.graph.symbol_names()) +
                                                      ", and embeddings " + dtype_name(wanted.type) +
                                                      shape_str(wanted.shape));
  entry->rows = shape_count(made.info.shape).value() / width();
  Result<Plan> plan = make_plan(c.graph, c.binding, {1, 1, 1, 1});
  if (!plan.is_ok()) return plan.status().with_context(encoder.name);
  entry->plan = std::move(*plan);
#ifndef NDEBUG
  SITU_RETURN_IF_ERROR(verify_plan(c.graph, c.binding, entry->plan, {1}));
#endif
  SITU_RETURN_IF_ERROR(entry->place(*room_, encoder.name));
  shelf_.keep(entry);
  return entry;
}

Result<std::byte*> MediaWriter::look_up(std::span<const Segment> text) {
  int64_t tokens = 0;  // all are wanted
  for (const Segment& s : text) tokens += s.count;
  SITU_RETURN_IF_ERROR(lookup_->run({text, tokens}, *room_->ledger).with_context(files_.lookup_name));
  const auto rows = std::find_if(lookup_plan_.ports.begin(), lookup_plan_.ports.end(),
                                 [&](const Root& r) { return r.value == cut_.lookup.binding.rows; });
  return lookup_io_.memory.data() + rows->offset;
}

// The tokens of text between those of encoders.
Status MediaWriter::look_up(const std::vector<char>& taken, MediaRows& rows) {
  const int64_t first = rows.first - rows.base;
  for (const Stretch& s :
       stretches(first, first + rows.count, [&](int64_t t) { return !taken[static_cast<size_t>(t)]; }))
    for (int64_t done = 0; done < s.count; done += chunk_) {
      Segment segment;
      segment.tokens = rows.ids.data() + s.first + done;
      segment.count = std::min(chunk_, s.count - done);
      segment.keys = segment.count;
      segment.prompt = true;
      StepInput step{{&segment, 1}};
      step.rows = rows.rows.view().data + (s.first + done - first) * rows.row_bytes();
      SITU_RETURN_IF_ERROR(lookup_->run(step, *room_->ledger).with_context(files_.lookup_name));
    }
  return Status::ok();
}

// A number below 0, where no id is, for what the decoder is given of a token: its embedding, and its positions. Keyed,
// so that nobody who does not know the secret makes a picture that is taken for another one.
int64_t MediaWriter::key_of(const MediaRows& rows, int64_t token) const {
  const int64_t row = token + rows.base - rows.first;
  uint64_t key = digest(nullptr, secret_, rows.rows.view().data + row * rows.row_bytes(), rows.row_bytes()).low;
  for (size_t i = static_cast<size_t>(token); i < rows.positions.size(); i += rows.ids.size())
    key = checksum(&rows.positions[i], sizeof rows.positions[i], key);
  return static_cast<int64_t>(key | uint64_t{1} << 63);
}

// Encoders one after the other, then the lookup.
class MediaWriter::Run : public Encoding {
 public:
  Run(MediaWriter& writer, MediaPlaces places, std::shared_ptr<MediaRows> rows)
      : Encoding(*writer.room_), writer_(writer), places_(std::move(places)), rows_(std::move(rows)) {}

  Result<bool> run(Clock::time_point until, std::vector<Stage>* stages) override {
    for (; next_ < places_.encoders.size(); ++next_) {
      const Result<bool> done = encode(until);
      if (!done.is_ok() || !*done) return done;
      entry_ = nullptr;
      running_ = false;
      clock_.end(stage_name(encoder()), stages);
    }
    std::vector<char> taken(rows_->ids.size());
    for (const MediaPlaces::Encoder& e : places_.encoders)
      for (const int64_t t : e.tokens) taken[static_cast<size_t>(t)] = 1;
    SITU_RETURN_IF_ERROR(writer_.look_up(taken, *rows_));
    clock_.end("embed", stages);
    rows_->keys = rows_->ids;
    for (const MediaPlaces::Encoder& e : places_.encoders)
      for (const int64_t t : e.tokens) rows_->keys[static_cast<size_t>(t)] = writer_.key_of(*rows_, t);
    return true;
  }
  void give(Sequence& sequence) override { sequence.media().add(std::move(rows_)); }

 private:
  const MediaPlaces::Encoder& places() const { return places_.encoders[next_]; }
  const MediaEncoder& encoder() const { return writer_.files_.media[places().index]; }

  Result<bool> encode(Clock::time_point until) {
    if (!entry_) {
      SITU_RETURN_IF_ERROR(assign(&entry_, find()));
      if (entry_) SITU_RETURN_IF_ERROR(check_media_rows(encoder(), places(), entry_->rows));
    }
    if (!entry_ || !room_.take(this)) return false;
    if (!running_) SITU_RETURN_IF_ERROR(begin());
    const Result<bool> done = entry_->program->go_on(until, *room_.ledger);
    if (!done.is_ok()) return done.status().with_context(encoder().name);
    if (!*done) return false;
    room_.leave(this);
    move_rows();
    return true;
  }

  Result<std::shared_ptr<Entry>> find() {
    const MediaKey key = MediaKey::of(places().arrays);
    if (!built_) built_ = std::make_shared<std::shared_ptr<Entry>>();
    Result<std::shared_ptr<Entry>> found = program(
        *writer_.builder_,
        [&] {
          return *built_
                     ? *built_
                     : writer_.shelf_.find([&](const Entry& e) { return e.encoder == places().index && e.key == key; });
        },
        [&writer = writer_, places = places(), built = built_](ProgramBuilder::Build& build, ThreadPool& pool) {
          Result<std::shared_ptr<Entry>> made = writer.build(places, build, pool);
          if (made.is_ok()) *built = std::move(*made);
          return made.is_ok() ? Status::ok() : made.status();
        });
    if (found.is_ok() && *found) built_ = nullptr;
    return found;
  }

  // Rows at the places of their tokens: behind each other, or where the last product of the encoder writes each by its
  // place. Else they are moved there.
  Status begin() {
    const Entry& e = *entry_;
    tensors_.clear();
    for (const Root& r : e.plan.ports)
      if (const Value& v = e.compiled.graph.values[r.value]; v.producer < 0)
        tensors_.push_back(places().arrays.at(v.name).view().data);
    const std::vector<int64_t>& tokens = places().tokens;
    to_.clear();
    for (size_t r = 0; r < tokens.size(); ++r)
      to_.push_back(tokens[e.order.empty() ? r : static_cast<size_t>(e.order[r])] - tokens[0]);
    const bool together = e.order.empty() && to_.back() + 1 == std::ssize(to_);
    const bool by_place = together || e.program->writes_rows_by_place();
    const int64_t apart = by_place ? 0 : e.rows * rows_->row_bytes();
    SITU_RETURN_IF_ERROR(room_.claim(e.plan.arena_bytes + apart, 0, encoder().name));
    apart_ = by_place ? Tensor() : Tensor::allocate(rows_->rows.type(), {e.rows, writer_.width()});
    segment_.count = segment_.keys = 1;
    step_ = {{&segment_, 1}};
    step_.encodes = true;
    step_.tensors = tensors_;
    step_.rows = by_place ? first() : apart_.view().data;
    step_.row_places = by_place && !together ? to_.data() : nullptr;
    running_ = true;
    return e.program->prepare(step_, *room_.ledger).with_context(encoder().name);
  }
  std::byte* first() const {
    return rows_->rows.view().data + (places().tokens[0] - (rows_->first - rows_->base)) * rows_->row_bytes();
  }
  void move_rows() {
    if (!apart_.present()) return;
    for (size_t r = 0; r < to_.size(); ++r) {
      View dst = apart_.view();
      dst.dims[0] = 1;
      View src = dst;
      dst.data = first() + to_[r] * rows_->row_bytes();
      src.data += static_cast<int64_t>(r) * rows_->row_bytes();
      move_bytes(dst, src, *room_.ledger);
    }
    apart_ = Tensor();  // its memory is counted for one run at a time
  }

  MediaWriter& writer_;
  const MediaPlaces places_;
  std::shared_ptr<MediaRows> rows_;
  size_t next_ = 0;  // encoder, and of its run:
  std::shared_ptr<std::shared_ptr<Entry>> built_;
  std::shared_ptr<Entry> entry_;
  bool running_ = false;
  std::vector<std::byte*> tensors_;
  std::vector<int64_t> to_;  // by row
  Tensor apart_;
  Segment segment_;
  StepInput step_;
};

Result<std::unique_ptr<Encoding>> MediaWriter::encoding(const MediaPrompt& prompt, const EncoderInput& input) {
  SITU_TAKE(places, media_places(files_, prompt.ids, input));
  auto rows = std::make_shared<MediaRows>();
  rows->base = prompt.base;
  rows->ids.assign(prompt.ids.begin(), prompt.ids.end());
  SITU_RETURN_IF_ERROR(set_media_positions(files_, cut_.decoder, places, prompt, rows.get()));
  int64_t first = INT64_MAX, last = -1;
  for (const MediaPlaces::Encoder& e : places.encoders) {
    first = std::min(first, e.tokens.front());
    last = std::max(last, e.tokens.back());
  }
  if (last < 0) return Status::error(Code::kInvalidArgument, "no array of an encoder is given");
  if (whole_) {
    first = 0;
    last = static_cast<int64_t>(prompt.ids.size()) - 1;
  }
  rows->first = prompt.base + first;
  rows->count = last + 1 - first;
  SITU_RETURN_IF_ERROR(assign(&rows->rows, room_->rows(rows_info().type, {rows->count, width()})));
  return std::unique_ptr<Encoding>(new Run(*this, std::move(places), std::move(rows)));
}

}  // namespace situ
