#include "pipelines/media_tags.h"

#include "audio/families.h"
#include "pipelines/llm.h"
#include "text/json_file.h"
#include "vision/processor.h"

namespace situ {
namespace {

// Of the processor; "": its files do not say.
std::string tag_of_family(const Model::Impl& m, bool sound) {
  if (!sound) {
    const Result<ImageProcessor> processor = ImageProcessor::open(m.folder.folder);
    return processor.is_ok() ? processor->prompt().placeholder : "";
  }
  const Result<nlohmann::json> config = read_json_object(m.folder.folder / "config.json");
  if (!config.is_ok()) return "";
  const Result<const SoundFamily*> family = find_sound_family(*config);
  return family.is_ok() ? (*family)->placeholder : "";
}

std::string tag_of_token(const Model::Impl& m, bool sound) {
  const int64_t id = sound ? m.folder.media.audio : m.folder.media.image;
  return m.tokenizer && id >= 0 ? m.tokenizer->id_to_token(id).value_or("") : "";
}

}  // namespace

Status check_media_tags(const Model& model, std::string_view text, OtherMedia given, const std::string& option) {
  const Model::Impl& m = impl_of(model);
  for (const MediaEncoder& encoder : m.files.media) {
    if (encoder.sound ? given.sounds : given.images) continue;
    for (const std::string& tag : {tag_of_family(m, encoder.sound), tag_of_token(m, encoder.sound)}) {
      if (tag.empty() || text.find(tag) == std::string_view::npos) continue;
      return Status::error(Code::kInvalidArgument, m.folder.folder.string() + ": the prompt has the tag of " +
                                                       (encoder.sound ? "a sound (" : "an image (") + tag +
                                                       "), and there is none: give it with " + option +
                                                       (encoder.sound ? "audio" : "image") + " FILE");
    }
  }
  return Status::ok();
}

}  // namespace situ
