"""Trainers of other libraries that train here: one import of a script changes.

``zinf.integrations.transformers.Trainer`` has the interface of transformers' Trainer, and
``zinf.integrations.trl.SFTTrainer`` that of TRL's. Each module needs the library it is named after.
"""
