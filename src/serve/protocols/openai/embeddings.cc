#include "serve/protocols/openai/embeddings.h"

#include <bit>
#include <charconv>
#include <nlohmann/json.hpp>

#include "serve/small_bodies.h"
#include "text/json_file.h"

namespace situ::serve {
namespace {

constexpr int64_t kMostNumbers = int64_t{1} << 20;

std::vector<int64_t> ids_of(const Json& list) {
  std::vector<int64_t> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) refuse_field("input", "should have token ids in its list");
    ids.push_back(id.get<int64_t>());
  }
  if (ids.empty()) refuse_field("input", "has a list without token ids");
  return ids;
}

EmbeddingsBody read(const Json& body) {
  EmbeddingsBody read;
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

// A part of the answer's list; what is around that.
Json entry_of(const std::vector<float>& row, size_t index, bool base64) {
  return {{"object", "embedding"}, {"index", index}, {"embedding", base64 ? Json(base64_of(row)) : list_of(row)}};
}
Json frame_of(const Embedded& made, const EmbeddingsBody& body) {
  Json whole = {{"object", "list"},
                {"data", Json::array()},
                {"model", body.model_name},
                {"usage", {{"prompt_tokens", made.tokens}, {"total_tokens", made.tokens}}}};
  if (!made.cut.empty()) whole["situ"] = {{"cut", made.cut}};
  body.ignored.tell(whole);
  return whole;
}

}  // namespace

OrRefusal<EmbeddingsBody> read_embeddings(const Json& body, const std::string& model_name, bool strict) try {
  Ignored ignored;
  if (std::optional<Refusal> wrong = check_fields(*small_body(kEmbeddingsUrl), body, strict, ignored))
    return std::move(*wrong);
  EmbeddingsBody asked = read(body);
  asked.model_name = model_name;
  asked.ignored = std::move(ignored);
  return asked;
} catch (const Refusal& refusal) {
  return refusal;
}

EmbeddingsText::EmbeddingsText(Embedded made, const EmbeddingsBody& body)
    : base64_(body.base64), made_(std::move(made)) {
  constexpr std::string_view kList = R"("data":[)";
  const std::string frame = json_text(frame_of(made_, body));
  const size_t list = frame.find(kList) + kList.size();
  text_ = frame.substr(0, list);
  end_ = frame.substr(list);
}

bool EmbeddingsText::add_rows() {
  constexpr size_t kNumbersAtOnce = 1 << 15;
  for (size_t numbers = 0; next_ < made_.rows.size() && numbers < kNumbersAtOnce; ++next_) {
    numbers += made_.rows[next_].size();
    text_ += (next_ > 0 ? "," : "") + json_text(entry_of(made_.rows[next_], next_, base64_));
    made_.rows[next_] = {};
  }
  return next_ < made_.rows.size();
}

OrRefusal<Json> answer_embeddings(Model& model, const Json& body, const std::string& model_name, bool strict,
                                  int64_t* tokens) {
  *tokens = 0;
  OrRefusal<EmbeddingsBody> asked = read_embeddings(body, model_name, strict);
  if (Refusal* why = std::get_if<Refusal>(&asked)) return std::move(*why);
  EmbeddingsBody& read = std::get<EmbeddingsBody>(asked);
  OrRefusal<std::unique_ptr<Embedding>> begun = Embedding::read(model, std::move(read.ask), nullptr);
  if (Refusal* why = std::get_if<Refusal>(&begun)) return std::move(*why);
  Embedding& embedding = *std::get<std::unique_ptr<Embedding>>(begun);
  *tokens = embedding.tokens();
  for (; !embedding.done(); embedding.wait())
    if (std::optional<Refusal> why = embedding.go_on()) return std::move(*why);
  const Embedded made = embedding.take();
  Json whole = frame_of(made, read);
  for (size_t i = 0; i < made.rows.size(); ++i) whole["data"].push_back(entry_of(made.rows[i], i, read.base64));
  return whole;
}

}  // namespace situ::serve
