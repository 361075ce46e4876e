#include "vision/settings.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "text/json_file.h"

namespace situ {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostSetEdge = 1 << 16;
constexpr int64_t kMostSetPixels = int64_t{1} << 31;

Status wrong(std::string_view name, const Json& value, const std::string& wanted) {
  return Status::error(Code::kInvalidArgument,
                       "preprocessor_config.json: " + std::string(name) + " is " + shown(value) + ", not " + wanted);
}

// Reads settings, and keeps the first error.
class SettingsReader {
 public:
  explicit SettingsReader(const Json& json) : json_(json) {}
  const Status& status() const { return status_; }

  void flag(const char* name, bool* out) {
    const Json& value = at(json_, name);
    if (value.is_null()) return;
    if (!value.is_boolean()) return fail(wrong(name, value, "true or false"));
    *out = value.get<bool>();
  }
  void whole(const char* name, int64_t least, int64_t most, int64_t* out) {
    whole_of(at(json_, name), name, least, most, out);
  }
  void real(const char* name, double* out) { real_of(at(json_, name), name, out); }

  // A number is `edge` of SizeSetting: both edges, or one.
  void size(const char* name, int64_t most, bool square, SizeSetting* out) {
    const Json& value = at(json_, name);
    if (value.is_null()) return;
    if (value.is_number()) {
      whole_of(value, name, 1, most, square ? &out->height : &out->shortest_edge);
      if (square) out->width = out->height;
      return;
    }
    if (!value.is_object()) return fail(wrong(name, value, "a number or an object of edges"));
    const auto edge = [&](const char* key, int64_t* to) {
      whole_of(at(value, key), std::string(name) + "." + key, 1, most, to);
    };
    edge("height", &out->height);
    edge("width", &out->width);
    edge("shortest_edge", &out->shortest_edge);
    edge("longest_edge", &out->longest_edge);
  }

  // One number for all channels, or three.
  void channels(const char* name, std::array<double, 3>* out) {
    const Json& value = at(json_, name);
    if (value.is_null()) return;
    if (value.is_array() && value.size() != 3) return fail(wrong(name, value, "one number or three"));
    for (size_t c = 0; c < 3; ++c) real_of(value.is_array() ? value[c] : value, name, &(*out)[c]);
  }

 private:
  static const Json& at(const Json& json, const char* name) {
    static const Json none;
    const auto found = json.find(name);
    return found == json.end() ? none : *found;
  }
  void fail(Status status) {
    if (status_.is_ok()) status_ = std::move(status);
  }
  void whole_of(const Json& value, const std::string& name, int64_t least, int64_t most, int64_t* out) {
    if (value.is_null()) return;
    const double number = value.is_number() ? value.get<double>() : NAN;
    if (!(number >= static_cast<double>(least) && number <= static_cast<double>(most)) ||
        number != std::floor(number)) {
      return fail(wrong(name, value, "a whole number of " + std::to_string(least) + " to " + std::to_string(most)));
    }
    *out = static_cast<int64_t>(number);
  }
  void real_of(const Json& value, const std::string& name, double* out) {
    if (value.is_null()) return;
    const double number = value.is_number() ? value.get<double>() : NAN;
    if (!(std::fabs(number) <= 1e9)) return fail(wrong(name, value, "a number"));
    *out = number;
  }

  const Json& json_;
  Status status_;
};

// A value of the command line: JSON, Python's words for true and false, or a text.
Json value_of(const std::string& text) {
  if (text == "True") return true;
  if (text == "False") return false;
  Result<Json> value = parse_json(text, "value");
  return value.is_ok() ? *value : Json(text);
}

Status override_one(const Json& defaults, const std::string& key, const std::string& text, Json* settings) {
  const size_t dot = key.find('.');
  const std::string name = key.substr(0, dot);
  if (!defaults.contains(name)) {
    std::string known;
    for (const auto& [other, value] : defaults.items()) known += (known.empty() ? "" : ", ") + other;
    return Status::error(Code::kInvalidArgument, "processor setting " + name + " is not known; there are " + known);
  }
  if (dot == std::string::npos) {
    (*settings)[name] = value_of(text);
    return Status::ok();
  }
  Json& whole = (*settings)[name];
  if (!whole.is_object()) whole = Json::object();
  whole[key.substr(dot + 1)] = value_of(text);
  return Status::ok();
}

Status check(const ImageSettings& settings, const Json& json) {
  const int resample = static_cast<int>(settings.resample);
  if (resample < 0 || resample > 5) return wrong("resample", json["resample"], "Pillow's number of a filter");
  for (const double std : settings.std) {
    if (settings.do_normalize && std == 0) return wrong("image_std", json["image_std"], "above 0");
  }
  return Status::ok();
}

}  // namespace

Result<ImageSettings> make_settings(const Json& defaults, const Json& file,
                                    const std::map<std::string, std::string>& overrides) {
  Json json = defaults;
  for (auto& [name, value] : json.items()) {
    const auto found = file.find(name);
    if (found != file.end() && !found->is_null()) value = *found;
  }
  for (const auto& [key, text] : overrides) SITU_RETURN_IF_ERROR(override_one(defaults, key, text, &json));
  ImageSettings settings;
  int64_t resample = static_cast<int64_t>(settings.resample);
  SettingsReader reader(json);
  reader.flag("do_resize", &settings.do_resize);
  reader.flag("do_center_crop", &settings.do_center_crop);
  reader.flag("do_rescale", &settings.do_rescale);
  reader.flag("do_normalize", &settings.do_normalize);
  reader.flag("do_image_splitting", &settings.do_image_splitting);
  reader.flag("do_pan_and_scan", &settings.do_pan_and_scan);
  reader.whole("resample", 0, 5, &resample);
  reader.real("rescale_factor", &settings.rescale_factor);
  reader.channels("image_mean", &settings.mean);
  reader.channels("image_std", &settings.std);
  // Where the class knows shortest_edge alone, a number is that.
  const bool square = !defaults.contains("do_center_crop");
  reader.size("size", json.contains("merge_size") ? kMostSetPixels : kMostSetEdge, square, &settings.size);
  reader.size("crop_size", kMostSetEdge, true, &settings.crop_size);
  reader.size("max_image_size", kMostSetEdge, true, &settings.max_image_size);
  reader.size("patch_size", kMostSetEdge, true, &settings.patch_size);
  reader.whole("min_pixels", 1, kMostSetPixels, &settings.min_pixels);
  reader.whole("max_pixels", 1, kMostSetPixels, &settings.max_pixels);
  reader.whole("temporal_patch_size", 1, 64, &settings.temporal_patch_size);
  reader.whole("merge_size", 1, 64, &settings.merge_size);
  reader.whole("pan_and_scan_min_crop_size", 1, kMostSetEdge, &settings.min_crop_size);
  reader.whole("pan_and_scan_max_num_crops", 1, 64, &settings.max_crops);
  reader.real("pan_and_scan_min_ratio_to_activate", &settings.min_ratio);
  SITU_RETURN_IF_ERROR(reader.status());
  settings.resample = static_cast<Resample>(resample);
  SITU_RETURN_IF_ERROR(check(settings, json));
  return settings;
}

std::optional<int64_t> whole_number(const Json& json, std::string_view path) {
  const Json* at = &json;
  while (!path.empty()) {
    const size_t dot = path.find('.');
    const auto found = at->is_object() ? at->find(path.substr(0, dot)) : at->end();
    if (!at->is_object() || found == at->end()) return std::nullopt;
    at = &*found;
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  if (!at->is_number()) return std::nullopt;
  const double number = at->get<double>();
  if (!(number >= 0 && number <= 2147483648.0) || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace situ
