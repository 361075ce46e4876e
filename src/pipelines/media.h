// Images and sounds of a prompt: from files, bytes or arrays to arrays of encoders, and to what stands for them in
// text.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "audio/families.h"
#include "pipelines/llm.h"
#include "vision/processor.h"

namespace situ {

// Of all images of a prompt, as the processor of the model's family makes them.
struct ReadImages {
  ImageProcessor processor;
  Processed processed;
  std::vector<Part> arrays;  // of the vision encoder; they hold what they need
  std::vector<MediaFacts> facts;
};
// `parts`: of the kind kImage. Errors: the model has no vision encoder, or its family is not known; an image that
// cannot be read, or is refused; a setting of the prompt that is not known.
Result<std::shared_ptr<ReadImages>> read_images(const Model::Impl& model, std::span<const Part* const> parts,
                                                const Prompt& prompt);

// Of all sounds of a prompt.
struct ReadSounds {
  const SoundFamily* family = nullptr;
  std::vector<Part> arrays;
  std::vector<MediaFacts> facts;
  // Each placeholder in the text becomes the tokens of a sound, in order. Error: another number of placeholders.
  Result<std::string> expand(const std::string& text) const;
};
// `parts`: of the kind kAudio. Errors: the model has no audio encoder, or its family is not known; a file that cannot
// be read or is cut off; more tokens than the context.
Result<ReadSounds> read_sounds(const Model::Impl& model, std::span<const Part* const> parts);

// What is wrong with the array of a part: its extents, or less data than they ask for.
Status check_array(const Part& part);

}  // namespace situ
