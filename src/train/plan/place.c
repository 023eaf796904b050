/* place: the pointers of a plan, once the bases of its arenas are known. */
#include "train/plan/plan.h"

void plan_place(struct plan *p)
{
    zinf_tiers_place(p->tiers, p->device_base, p->host_base);
    p->norm_parts = (double *)(void *)host_at(p, p->at.h_scalars);
}
