// Makers of the public types of prompts, and names of the public enums.
#include <algorithm>
#include <functional>
#include <numeric>

#include "pipelines/encoder_inputs.h"
#include "situ/generate.h"
#include "situ/load_options.h"
#include "situ/tokenizer.h"

namespace situ {

Part Part::of_text(std::string text) {
  Part part;
  part.text = std::move(text);
  return part;
}

Part Part::of_ids(std::vector<int64_t> ids) {
  Part part;
  part.kind = Kind::kIds;
  part.ids = std::move(ids);
  return part;
}

Part Part::of_file(Kind kind, std::string path) {
  Part part;
  part.kind = kind;
  part.path = std::move(path);
  return part;
}

Part Part::of_bytes(Kind kind, std::vector<uint8_t> bytes) {
  Part part;
  part.kind = kind;
  const auto held = std::make_shared<const std::vector<uint8_t>>(std::move(bytes));
  part.data = {held, held->data()};
  part.size = held->size();
  return part;
}

Part Part::of_array(Kind kind, std::string name, Type type, std::vector<int64_t> shape,
                    std::shared_ptr<const void> data) {
  Part part;
  part.kind = kind;
  part.text = std::move(name);
  part.type = type;
  part.data = std::move(data);
  part.size = std::accumulate(shape.begin(), shape.end(), static_cast<size_t>(dtype_bytes(dtype_of(type))),
                              [](size_t n, int64_t d) { return n * static_cast<size_t>(std::max<int64_t>(d, 0)); });
  part.shape = std::move(shape);
  return part;
}

Message Message::of_text(std::string role, std::string text) {
  return {std::move(role), {Part::of_text(std::move(text))}};
}

const std::vector<int64_t>& Prompt::ids() const {
  static const std::vector<int64_t> none;
  const auto found = std::find_if(parts.begin(), parts.end(), [](const Part& p) { return p.kind == Part::Kind::kIds; });
  return found == parts.end() ? none : found->ids;
}

Result<KvType> kv_type_of(const std::string& name) {
  constexpr const char* kNames[] = {"auto", "f32", "f16", "bf16", "q8"};
  const auto* const found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found != std::end(kNames)) return static_cast<KvType>(found - std::begin(kNames));
  return Status::error(Code::kInvalidArgument, "kv_type '" + name + "' should be auto, f32, f16, bf16 or q8");
}

Result<EarlyStopping> early_stopping_of(const std::string& name) {
  constexpr const char* kNames[] = {"false", "true", "never"};
  const auto* const found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found != std::end(kNames)) return static_cast<EarlyStopping>(found - std::begin(kNames));
  return Status::error(Code::kInvalidArgument, "early_stopping should be false, true or never, is '" + name + "'");
}

}  // namespace situ
