#include "serve/embeddings.h"

#include <bit>
#include <charconv>
#include <nlohmann/json.hpp>

#include "serve/requests.h"
#include "serve/small_bodies.h"

namespace situ::serve {
namespace {

// What is computed in one go: other requests of the model wait for so much.
constexpr size_t kTextsAtOnce = 32, kBytesAtOnce = 2048;
constexpr int64_t kMostNumbers = int64_t{1} << 20;

struct Input {
  std::string text;
  std::vector<int64_t> ids;
  size_t size() const { return text.size() + 4 * ids.size(); }
};

struct Inputs {
  std::vector<Input> all;
  bool texts = true;  // else token ids
  bool base64 = false;
  EmbedOptions options;
};

std::vector<int64_t> ids_of(const Json& list) {
  std::vector<int64_t> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) refuse_field("input", "should have token ids in its list");
    ids.push_back(id.get<int64_t>());
  }
  if (ids.empty()) refuse_field("input", "has a list without token ids");
  return ids;
}

Inputs read(const Json& body) {
  Inputs inputs;
  const auto input = body.find("input");
  if (input == body.end() || input->is_null()) refuse_field("input", "is missing", Refusal::Kind::kMissing);
  const Json list = input->is_string() || (input->is_array() && !input->empty() && (*input)[0].is_number())
                        ? Json::array({*input})
                        : *input;
  if (!list.is_array() || list.empty())
    refuse_field("input", "should be a text, token ids, or a list of either", Refusal::Kind::kType);
  inputs.texts = list[0].is_string();
  for (const Json& one : list) {
    if (one.is_string() != inputs.texts || !(one.is_string() || one.is_array()))
      refuse_field("input", "should be a text, token ids, or a list of either", Refusal::Kind::kType);
    Input& made = inputs.all.emplace_back();
    if (inputs.texts)
      made.text = one.get<std::string>();
    else
      made.ids = ids_of(one);
  }
  if (const auto format = body.find("encoding_format"); format != body.end() && !format->is_null()) {
    if (*format != "float" && *format != "base64")
      refuse_field("encoding_format", "should be float or base64, is " + shown(*format));
    inputs.base64 = *format == "base64";
  }
  if (const auto name = body.find("prompt_name"); name != body.end() && !name->is_null())
    inputs.options.prompt_name = text_of(body, "prompt_name");
  if (const auto size = body.find("dimensions"); size != body.end() && !size->is_null()) {
    if (!size->is_number_integer() || *size < 1 || *size > kMostNumbers)
      refuse_field("dimensions",
                   "should be an integer from 1 to " + std::to_string(kMostNumbers) + ", is " + shown(*size));
    inputs.options.dimensions = size->get<int64_t>();
  }
  if (inputs.options.prompt_name && !inputs.texts) refuse_field("prompt_name", "is for texts, not for token ids");
  return inputs;
}

std::string base64_of(const std::vector<float>& row) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  uint32_t bits = 0;
  int count = 0;
  const auto put = [&](uint32_t byte) {
    bits = bits << 8 | byte;
    if (++count < 3) return;
    for (int shift = 18; shift >= 0; shift -= 6) text += kDigits[bits >> shift & 63];
    bits = 0, count = 0;
  };
  for (const float x : row)
    for (uint32_t word = std::bit_cast<uint32_t>(x), k = 0; k < 4; ++k, word >>= 8) put(word & 255);
  if (count == 0) return text;
  const int left = count;
  while (count != 0) put(0);
  text.resize(text.size() - static_cast<size_t>(3 - left));
  return text + std::string(static_cast<size_t>(3 - left), '=');
}

// The shortest text that reads as the same float.
Json number_of(float x) {
  char digits[32];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, x);
  double same = 0;
  std::from_chars(digits, end, same);
  return same;
}

Json list_of(const std::vector<float>& row) {
  Json list = Json::array();
  for (const float x : row) list.push_back(number_of(x));
  return list;
}

Result<Embeddings> embed(Model& model, const Inputs& inputs, size_t first, size_t count) {
  std::vector<std::string> texts;
  std::vector<std::vector<int64_t>> ids;
  for (size_t i = first; i < first + count; ++i) {
    if (inputs.texts)
      texts.push_back(inputs.all[i].text);
    else
      ids.push_back(inputs.all[i].ids);
  }
  return inputs.texts ? model.embed(texts, inputs.options) : model.embed(ids, inputs.options);
}

Refusal refusal_at(Model& model, const Status& status, size_t number) {
  using Kind = Refusal::Kind;
  std::string message = without_paths(model, status.message());
  for (const char* own : {"text 1: ", "text 1 "})  // of those that were computed together
    if (message.starts_with(own)) message = message.substr(std::string_view(own).size());
  switch (status.code()) {
    case Code::kUnsupportedModel:
      return {Kind::kByModel, "model", message};
    case Code::kContextExceeded:
      return {Kind::kContext, "input", "input[" + std::to_string(number) + "]: " + message};
    case Code::kInvalidArgument:
    case Code::kNotFound:
      if (status.option() == "dimensions") return {Kind::kUnsupported, "dimensions", message};  // sizes there are not
      if (!status.option().empty()) return {Kind::kInvalid, status.option(), message};
      return {Kind::kInvalid, "input", "input[" + std::to_string(number) + "]: " + message};
    case Code::kNoRoom:
      return {Kind::kNoRoom, "", message};
    case Code::kBusy:
      return {Kind::kBusy, "", message};
    default:
      return {Kind::kFailed, "", message};
  }
}

Json answer(Model& model, const Json& body, const std::string& model_name, bool strict, int64_t* tokens,
            const std::string& client, const std::function<bool()>& stopped) {
  Ignored ignored;
  if (std::optional<Refusal> wrong = check_fields(*small_body(kEmbeddingsUrl), body, strict, ignored))
    throw std::move(*wrong);
  Inputs inputs = read(body);
  inputs.options.client = client;
  Json data = Json::array(), cut = Json::array();
  *tokens = 0;
  for (size_t first = 0, count = 0; first < inputs.all.size(); first += count) {
    if (stopped && stopped()) throw Refusal{Refusal::Kind::kStopping, "", "the server is stopping"};
    size_t bytes = 0;
    for (count = 0; first + count < inputs.all.size() && count < kTextsAtOnce; ++count) {
      bytes += inputs.all[first + count].size();
      if (count > 0 && bytes > kBytesAtOnce) break;
    }
    Result<Embeddings> made = embed(model, inputs, first, count);
    if (!made.is_ok() && count > 1) {  // which one it is
      count = 1;
      made = embed(model, inputs, first, count);
    }
    if (!made.is_ok()) throw refusal_at(model, made.status(), first);
    for (size_t i = 0; i < count; ++i) {
      const std::vector<float>& row = made->rows[i];
      data.push_back({{"object", "embedding"},
                      {"index", first + i},
                      {"embedding", inputs.base64 ? Json(base64_of(row)) : list_of(row)}});
      *tokens += made->tokens[i];
    }
    for (const size_t i : made->cut) cut.push_back(first + i);
  }
  Json whole = {{"object", "list"},
                {"data", std::move(data)},
                {"model", model_name},
                {"usage", {{"prompt_tokens", *tokens}, {"total_tokens", *tokens}}}};
  if (!cut.empty()) whole["situ"] = {{"cut", std::move(cut)}};
  ignored.tell(whole);
  return whole;
}

}  // namespace

OrRefusal<Json> answer_embeddings(Model& model, const Json& body, const std::string& model_name, bool strict,
                                  int64_t* tokens, const std::string& client,
                                  const std::function<bool()>& stopped) try {
  return answer(model, body, model_name, strict, tokens, client, stopped);
} catch (const Refusal& refusal) {
  return refusal;
}

}  // namespace situ::serve
