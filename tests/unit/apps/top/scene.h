/* scene.h: a sample as a test wants it: cards, jobs, trees of processes, names that nobody should have. */
#ifndef SCENE_H
#define SCENE_H

#include "view.h"

/* Two cards, jobs `train` (a tree of three), `notebook` and one inside of it, and a stranger. */
struct sample *scene_usual(void);
/* The same with hostile names: control characters, wide and combining ones, invalid UTF-8, bidi marks. */
struct sample *scene_hostile(void);
/* `jobs` jobs of `processes` processes each, on `cards` cards. */
struct sample *scene_many(int jobs, int processes, int cards);
struct sample *scene_nothing(const char *why);

/* One sample's pieces. Pids and start times are made up from the place. */
struct sample_device *scene_card(struct sample *sample, uint64_t total, uint64_t used);
/* Processes and shares of a job are added right after it. */
struct sample_job *scene_job(struct sample *sample, const char *name, uint64_t budget, uint64_t held);
struct sample_process *scene_process(struct sample *sample, const char *command, uint64_t held,
                                     int parent);
struct sample_process *scene_stranger(struct sample *sample, const char *command, uint64_t held);
void scene_course(struct trend *trend, uint64_t first, uint64_t step, int count);

#endif
