#include "serve/body_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/one_line.h"
#include "pipelines/llm.h"

namespace situ::serve {
namespace {

// Options of GenerateOptions that a field of another name says; those of read_max_tokens and its like say it
// themselves.
constexpr std::pair<const char*, const char*> kOtherNames[] = {
    {"stop_token_ids", "stop_ids"}, {"min_tokens", "min_new_tokens"}, {"num_beams", "beams"}};

}  // namespace

void BodyReader::read_field(const BodyField& f, const Json& value) {
  using Use = BodyField::Use;
  if (f.use == Use::kOption) {
    const auto other = std::find_if(std::begin(kOtherNames), std::end(kOtherNames),
                                    [&](const auto& n) { return f.name == std::string_view(n.first); });
    says(other == std::end(kOtherNames) ? f.name : other->second, f.name);
  }
  if (f.use == Use::kRefused && !is_neutral(f, value))
    refuse(f.name, std::string(f.name) + " is not supported: " + f.what, Refusal::Kind::kUnsupported);
  if (f.use == Use::kTemplate && !template_reads(f.name)) ask.ignored.add(f.name);
  if (f.read) f.read(*this, f.name, value);
}

void BodyReader::read_fields() {
  for (const auto& [key, value] : body.items()) {
    const bool known = std::any_of(fields.begin(), fields.end(), [&](const BodyField* f) { return key == f->name; });
    if (!value.is_null() && !known) ignore(key);
  }
  for (const BodyField* field : fields)
    if (const Json* value = find(field->name); value && !refusal) read_field(*field, *value);
}

void BodyReader::ignore(const std::string& name) {
  const std::string shown = one_line(name.substr(0, 200));
  if (rules.strict) return refuse(shown, "unknown parameter: '" + shown + "'", Refusal::Kind::kUnknown);
  ask.ignored.add(shown);
}

void BodyReader::ignore_others(const Json& object, const std::string& where, std::initializer_list<const char*> known) {
  for (const auto& [key, value] : object.items())
    if (!value.is_null() && std::none_of(known.begin(), known.end(), [&](const char* k) { return key == k; }))
      ignore(where + "." + key);
}

bool BodyReader::template_reads(std::string_view name) const {
  const FolderTokenizer* text = impl_of(model).text();
  return text && text->template_reads(name);
}

const ModelForm* BodyReader::form() const { return impl_of(model).texts->form(); }

void BodyReader::refuse_type(const std::string& param, const Json& value, const std::string& wanted) {
  refuse(param, param + " should be " + wanted + ", is " + shown(value), Refusal::Kind::kType);
}

std::optional<double> BodyReader::number(const std::string& name, const Json& value, double least, double most) {
  const auto text = [](double x) { return Json(x).dump(); };
  const std::string range = std::isfinite(least) && std::isfinite(most) ? " from " + text(least) + " to " + text(most)
                            : std::isfinite(least)                      ? " of at least " + text(least)
                                                                        : "";
  if (!value.is_number()) {
    refuse_type(name, value, "a number" + range);
    return std::nullopt;
  }
  const double x = value.get<double>();
  if (x >= least && x <= most) return x;
  refuse(name, name + " should be a number" + range + ", is " + shown(value));
  return std::nullopt;
}

std::optional<int64_t> BodyReader::integer(const std::string& name, const Json& value, int64_t least, int64_t most) {
  const std::string wanted = "an integer from " + std::to_string(least) + " to " + std::to_string(most);
  if (!value.is_number_integer()) {
    refuse_type(name, value, wanted);
    return std::nullopt;
  }
  const bool large = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX};
  const int64_t n = large ? INT64_MAX : value.get<int64_t>();
  if ((!large || most == INT64_MAX) && n >= least && n <= most) return n;
  refuse(name, name + " should be " + wanted + ", is " + shown(value));
  return std::nullopt;
}

std::optional<bool> BodyReader::boolean(const std::string& name, const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  refuse_type(name, value, "true or false");
  return std::nullopt;
}

std::optional<std::string> BodyReader::string(const std::string& name, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  refuse_type(name, value, "a string");
  return std::nullopt;
}

std::optional<std::vector<int64_t>> BodyReader::ids(const std::string& name, const Json& value) {
  std::vector<int64_t> ids;
  if (!value.is_array()) {
    refuse_type(name, value, "a list of token ids");
    return std::nullopt;
  }
  for (const Json& item : value) {
    if (!item.is_number_integer() || (item.is_number_unsigned() && item.get<uint64_t>() > uint64_t{INT64_MAX})) {
      refuse_type(name, item, "a list of token ids");
      return std::nullopt;
    }
    ids.push_back(item.get<int64_t>());
  }
  return ids;
}

void read_later(BodyReader&, const char*, const Json&) {}

void read_model(BodyReader& r, const char* name, const Json& value) {
  if (std::optional<std::string> text = r.string(name, value)) r.ask.model = std::move(*text);
}

void read_stream(BodyReader& r, const char* name, const Json& value) {
  if (const std::optional<bool> stream = r.boolean(name, value)) r.ask.stream = *stream;
}

void read_temperature(BodyReader& r, const char* name, const Json& value) {
  const std::optional<double> x = r.number(name, value, 0, std::numeric_limits<double>::infinity());
  if (!x) return;
  r.ask.options.temperature = *x;
  r.ask.options.sample = *x > 0;
  r.says("temperature", name);
}

}  // namespace situ::serve
