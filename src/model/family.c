/* family: the list of families. Adding one is adding its file and a line here. */
#include "model/model.h"

static const struct zinf_family *const families[] = {
    &zinf_family_gpt2,
};

const struct zinf_family *zinf_family_find(const char *model_type)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(families[i]->model_type, model_type))
            return families[i];
    return NULL;
}

const char *zinf_family_names(void)
{
    return "gpt2";
}
