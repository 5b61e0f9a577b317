/* ps_table.h: the table of `ullage ps`. */
#ifndef ULLAGE_PS_TABLE_H
#define ULLAGE_PS_TABLE_H

#include "jobs.h"

/* Prints it; with `tree` processes stand below those that started them. Sorts the processes of each job. */
void ps_table(const struct job_list *list, bool tree);

#endif
