#include <lipgrad/vision/loader.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include <lipgrad/core/check.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/threads.h>

namespace lipgrad {
namespace {

constexpr std::size_t kShownErrors = 100;

// Images that a thread takes at a time: small ones are made faster than threads are woken.
std::int64_t piece_of(std::int64_t numel) {
  return std::clamp<std::int64_t>((std::int64_t{1} << 15) / std::max<std::int64_t>(numel, 1), 1,
                                  16);
}

// A batch in the making. Its memory is taken by the thread that uses the loader; the threads of the
// loader write to it, each its own rows.
struct Job {
  ImagePosition position;
  std::vector<std::int64_t> ids;
  Tensor images;
  float* rows = nullptr;
  std::int64_t numel = 0;
  std::int64_t taken = 0, done = 0;  // of ids
  struct Failure {
    std::int64_t row;
    std::string error;
  };
  std::vector<Failure> corrupt;
  std::exception_ptr failure;  // of another kind
};

}  // namespace

struct ImageLoader::State {
  State(std::shared_ptr<const ImageSet> images, const ImageLoaderOptions& given)
      : set(std::move(images)),
        options(given),
        transform(set->info(), options.augment, options.evaluation, options.channels_last) {}

  std::shared_ptr<const ImageSet> set;
  ImageLoaderOptions options;
  ImageTransform transform;
  std::int64_t steps = 0, batch = 0;

  // Of the thread that uses the loader.
  ImagePosition taken, scheduled;
  std::int64_t order_epoch = -1;
  Tensor order;
  std::set<std::int64_t> corrupt_ids;
  CorruptImages corrupt;

  // Under the mutex. Jobs are worked at in their order; who works at one keeps it alive.
  std::mutex mutex;
  std::condition_variable work, finished;
  std::deque<std::shared_ptr<Job>> jobs;
  bool ending = false;
  std::vector<std::thread> threads;

  std::shared_ptr<Job> make_job(ImagePosition at);
  void schedule();
  void run();
  void make(Job& job, std::int64_t row, Image& image, TransformScratch& scratch);
  ImageBatch finish(Job& job);
};

std::shared_ptr<Job> ImageLoader::State::make_job(ImagePosition at) {
  auto job = std::make_shared<Job>();
  job->position = at;
  const std::int64_t first = at.step * batch, last = std::min(set->size(), first + batch);
  if (options.train && order_epoch != at.epoch) {
    Generator rng;
    rng.restore(ImageRandom::stream(options.seed),
                static_cast<std::uint64_t>(at.epoch) * 4 + ImageRandom::order);
    order = rand_permutation(set->size(), rng);
    order_epoch = at.epoch;
  }
  for (std::int64_t i = first; i < last; ++i)
    job->ids.push_back(options.train ? order.data<std::int64_t>()[i] : i);
  const auto count = static_cast<std::int64_t>(job->ids.size());
  const std::int64_t channels = transform.channels(),
                     height = options.train ? options.augment.height : options.evaluation.height,
                     width = options.train ? options.augment.width : options.evaluation.width;
  job->numel = transform.numel(options.train);
  job->images = empty(options.channels_last ? Shape{count, height, width, channels}
                                            : Shape{count, channels, height, width});
  job->rows = job->images.mutable_data<float>();
  return job;
}

void ImageLoader::State::schedule() {
  while (true) {
    {
      const std::lock_guard lock(mutex);
      if (static_cast<std::int64_t>(jobs.size()) > options.ahead) return;
    }
    std::shared_ptr<Job> job = make_job(scheduled);
    if (++scheduled.step == steps) scheduled = {scheduled.epoch + 1, 0};
    {
      const std::lock_guard lock(mutex);
      jobs.push_back(std::move(job));
    }
    work.notify_all();
  }
}

void ImageLoader::State::make(Job& job, std::int64_t row, Image& image, TransformScratch& scratch) {
  const std::int64_t id = job.ids[static_cast<std::size_t>(row)];
  float* const out = job.rows + row * job.numel;
  set->read(id, image);
  if (options.train)
    transform.train(image, options.seed, job.position.epoch, id, scratch, out);
  else
    transform.evaluate(image, scratch, out);
}

void ImageLoader::State::run() {
  Image image;
  TransformScratch scratch;
  const std::int64_t piece = piece_of(transform.numel(options.train));
  std::unique_lock lock(mutex);
  while (true) {
    std::shared_ptr<Job> job;
    work.wait(lock, [&] {
      if (ending) return true;
      for (const auto& candidate : jobs)
        if (candidate->taken < static_cast<std::int64_t>(candidate->ids.size())) {
          job = candidate;
          return true;
        }
      return false;
    });
    if (ending) return;
    const std::int64_t begin = job->taken,
                       end = std::min<std::int64_t>(begin + piece,
                                                    static_cast<std::int64_t>(job->ids.size()));
    job->taken = end;
    for (std::int64_t row = begin; row < end; ++row) {
      std::optional<std::string> error;
      std::exception_ptr failure;
      lock.unlock();
      try {
        make(*job, row, image, scratch);
      } catch (const Error& caught) {
        error = caught.what();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (error) job->corrupt.push_back({row, std::move(*error)});
      if (failure && !job->failure) job->failure = failure;
      ++job->done;
    }
    if (job->done == static_cast<std::int64_t>(job->ids.size())) finished.notify_all();
  }
}

ImageBatch ImageLoader::State::finish(Job& job) {
  if (job.failure) std::rethrow_exception(job.failure);
  std::sort(job.corrupt.begin(), job.corrupt.end(),
            [](const Job::Failure& a, const Job::Failure& b) { return a.row < b.row; });
  if (!job.corrupt.empty() && !options.skip_corrupt) throw Error(job.corrupt.front().error);
  const auto count = static_cast<std::int64_t>(job.ids.size()),
             kept = count - static_cast<std::int64_t>(job.corrupt.size());
  for (const Job::Failure& failure : job.corrupt) {
    if (!corrupt_ids.insert(job.ids[static_cast<std::size_t>(failure.row)]).second) continue;
    ++corrupt.count;
    if (corrupt.errors.size() < kShownErrors) corrupt.errors.push_back(failure.error);
  }
  LIPGRAD_CHECK(kept > 0,
                "ImageLoader: none of the {} images of batch {} can be read; the first: {}", count,
                job.position.step, job.corrupt.front().error);
  ImageBatch result{
      .images = std::move(job.images), .epoch = job.position.epoch, .step = job.position.step};
  result.labels = empty({kept}, i64);
  auto* label = result.labels.mutable_data<std::int64_t>();
  std::int64_t to = 0;
  std::size_t next = 0;
  for (std::int64_t row = 0; row < count; ++row) {
    if (next < job.corrupt.size() && job.corrupt[next].row == row) {
      ++next;
      continue;
    }
    if (to != row) std::copy_n(job.rows + row * job.numel, job.numel, job.rows + to * job.numel);
    label[to++] = set->label(job.ids[static_cast<std::size_t>(row)]);
  }
  if (kept < count) result.images = result.images.alias(result.images.shape().with(0, kept));
  if (options.train && options.mix.soft_targets()) {
    const ImageMix mix = draw_mix(options.mix, options.seed, job.position.epoch, job.position.step,
                                  options.augment.height, options.augment.width);
    mix_images(result.images, mix, options.channels_last);
    result.targets =
        mixed_targets(result.labels, set->classes(), mix.lambda, options.mix.label_smoothing);
  }
  return result;
}

ImageLoader::ImageLoader(std::shared_ptr<const ImageSet> set, const ImageLoaderOptions& options) {
  LIPGRAD_CHECK(set != nullptr, "ImageLoader: no set is given");
  LIPGRAD_CHECK(set->size() > 0, "ImageLoader: {} holds no images", set->info().name);
  LIPGRAD_CHECK(options.batch_size >= 1 && options.batch_size <= std::int64_t{1} << 24,
                "ImageLoader: batch_size must be from 1 to 2^24, got {}", options.batch_size);
  LIPGRAD_CHECK(options.workers >= 0 && options.workers <= 1024,
                "ImageLoader: workers must be from 0 to 1024, got {}", options.workers);
  LIPGRAD_CHECK(options.ahead >= 0 && options.ahead <= 1024,
                "ImageLoader: ahead must be from 0 to 1024, got {}", options.ahead);
  check_mix_options("ImageLoader", options.mix);
  state_ = std::make_unique<State>(std::move(set), options);
  State& s = *state_;
  const std::int64_t size = s.set->size();
  s.batch = std::min(options.batch_size, size);
  s.steps = options.train ? size / s.batch : (size + s.batch - 1) / s.batch;
  const int workers = options.workers > 0 ? options.workers : num_threads();
  try {
    for (int i = 0; i < workers; ++i) s.threads.emplace_back([&s] { s.run(); });
  } catch (...) {
    // One that could be started is enough.
    if (s.threads.empty()) throw;
  }
}

ImageLoader::~ImageLoader() {
  if (!state_) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
  }
  state_->work.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

const ImageSet& ImageLoader::set() const { return *state_->set; }
std::int64_t ImageLoader::steps() const { return state_->steps; }
ImagePosition ImageLoader::position() const { return state_->taken; }
CorruptImages ImageLoader::corrupt() const { return state_->corrupt; }

ImageBatch ImageLoader::next() {
  State& s = *state_;
  s.schedule();
  std::shared_ptr<Job> job;
  {
    std::unique_lock lock(s.mutex);
    job = s.jobs.front();
    s.finished.wait(lock, [&] { return job->done == static_cast<std::int64_t>(job->ids.size()); });
  }
  ImageBatch batch = s.finish(*job);
  {
    const std::lock_guard lock(s.mutex);
    s.jobs.pop_front();
  }
  if (++s.taken.step == s.steps) s.taken = {s.taken.epoch + 1, 0};
  // The threads go on while the batch is used.
  s.schedule();
  return batch;
}

void ImageLoader::seek(ImagePosition position) {
  State& s = *state_;
  LIPGRAD_CHECK(position.epoch >= 0 && position.step >= 0 && position.step < s.steps,
                "ImageLoader: step {} of epoch {}, expected a step in [0, {})", position.step,
                position.epoch, s.steps);
  {
    const std::lock_guard lock(s.mutex);
    s.jobs.clear();
  }
  s.taken = s.scheduled = position;
}

}  // namespace lipgrad
