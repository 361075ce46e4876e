#include "serve/protocols/openai/embeddings.h"

#include <bit>
#include <charconv>
#include <nlohmann/json.hpp>

#include "serve/embeddings.h"
#include "serve/small_bodies.h"

namespace situ::serve {
namespace {

constexpr int64_t kMostNumbers = int64_t{1} << 20;

struct Body {
  EmbedAsk ask;
  bool base64 = false;
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

Body read(const Json& body) {
  Body read;
  EmbedAsk& inputs = read.ask;
  const auto input = body.find("input");
  if (input == body.end() || input->is_null()) refuse_field("input", "is missing", Refusal::Kind::kMissing);
  const Json list = input->is_string() || (input->is_array() && !input->empty() && (*input)[0].is_number())
                        ? Json::array({*input})
                        : *input;
  if (!list.is_array() || list.empty())
    refuse_field("input", "should be a text, token ids, or a list of either", Refusal::Kind::kType);
  const bool texts = list[0].is_string();
  for (const Json& one : list) {
    if (one.is_string() != texts || !(one.is_string() || one.is_array()))
      refuse_field("input", "should be a text, token ids, or a list of either", Refusal::Kind::kType);
    inputs.inputs.emplace_back(texts ? TextPrompt(one.get<std::string>()) : TextPrompt(ids_of(one)));
  }
  if (const auto format = body.find("encoding_format"); format != body.end() && !format->is_null()) {
    if (*format != "float" && *format != "base64")
      refuse_field("encoding_format", "should be float or base64, is " + shown(*format));
    read.base64 = *format == "base64";
  }
  if (const auto name = body.find("prompt_name"); name != body.end() && !name->is_null())
    inputs.options.prompt_name = text_of(body, "prompt_name");
  if (const auto size = body.find("dimensions"); size != body.end() && !size->is_null()) {
    if (!size->is_number_integer() || *size < 1 || *size > kMostNumbers)
      refuse_field("dimensions",
                   "should be an integer from 1 to " + std::to_string(kMostNumbers) + ", is " + shown(*size));
    inputs.options.dimensions = size->get<int64_t>();
  }
  if (inputs.options.prompt_name && !texts) refuse_field("prompt_name", "is for texts, not for token ids");
  return read;
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

Json answer_json(const Embedded& made, bool base64, const std::string& model_name) {
  Json data = Json::array();
  for (const std::vector<float>& row : made.rows)
    data.push_back(
        {{"object", "embedding"}, {"index", data.size()}, {"embedding", base64 ? Json(base64_of(row)) : list_of(row)}});
  Json whole = {{"object", "list"},
                {"data", std::move(data)},
                {"model", model_name},
                {"usage", {{"prompt_tokens", made.tokens}, {"total_tokens", made.tokens}}}};
  if (!made.cut.empty()) whole["situ"] = {{"cut", made.cut}};
  return whole;
}

}  // namespace

OrRefusal<Json> answer_embeddings(Model& model, const Json& body, const std::string& model_name, bool strict,
                                  int64_t* tokens, const std::string& client,
                                  const std::function<bool()>& stopped) try {
  Ignored ignored;
  if (std::optional<Refusal> wrong = check_fields(*small_body(kEmbeddingsUrl), body, strict, ignored))
    return std::move(*wrong);
  Body asked = read(body);
  asked.ask.options.client = client;
  const OrRefusal<Embedded> made = embed(model, asked.ask, tokens, stopped);
  if (const Refusal* why = std::get_if<Refusal>(&made)) return *why;
  Json whole = answer_json(std::get<Embedded>(made), asked.base64, model_name);
  ignored.tell(whole);
  return whole;
} catch (const Refusal& refusal) {
  return refusal;
}

}  // namespace situ::serve
